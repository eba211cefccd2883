"""Real processes for the tests and the bench: the upstream and ``engine-overlay proxy``."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
START_SECONDS = 30


@dataclass
class Running:
    """A process that listens on ``port``; ``lines`` is what it has written to stderr so far."""

    process: subprocess.Popen[str]
    port: int
    lines: list[str] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def memory(self) -> int:
        """Resident bytes."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.search(r"VmRSS:\s+(\d+) kB", status).group(1)) * 1024

    def cpu(self) -> float:
        """Seconds of CPU time, user and system."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextlib.contextmanager
def upstream() -> Iterator[Running]:
    with _started([sys.executable, "-m", "tests.proxy.upstream"]) as process:
        yield Running(process, int(process.stdout.readline()))


@contextlib.contextmanager
def proxy(url: str, *options: str, checkout: Path | None = None) -> Iterator[Running]:
    """The proxy on a free port, when it says that it listens. Raises RuntimeError when it ends before.

    ``checkout``: another one of this repository, whose code is to run.
    """
    command = [sys.executable, "-m", "engine_overlay.cli", "proxy", "--upstream", url, "--port", "0", *options]
    with _started(command, checkout) as process:
        lines: list[str] = []
        ready = threading.Event()

        def read() -> None:
            for line in process.stderr:
                lines.append(line.rstrip("\n"))
                ready.set()
            ready.set()

        threading.Thread(target=read, daemon=True).start()
        ready.wait(START_SECONDS)
        found = re.search(r"proxy: http://127\.0\.0\.1:(\d+) -> ", lines[0]) if lines else None
        if not found:
            raise RuntimeError(f"the proxy did not start: {lines}")
        yield Running(process, int(found.group(1)), lines)


@contextlib.contextmanager
def _started(command: list[str], checkout: Path | None = None) -> Iterator[subprocess.Popen[str]]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith("ENGINE_OVERLAY")}
    kept["PYTHONUNBUFFERED"] = "1"
    with tempfile.TemporaryDirectory() as folder:
        if checkout is not None:
            (Path(folder) / "engine_overlay").symlink_to(checkout.resolve() / "overlay")
            kept["PYTHONPATH"] = folder
        process = subprocess.Popen(
            command, cwd=ROOT if checkout is None else folder, env=kept, text=True, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE if "proxy" in command else None,
        )  # fmt: skip
        try:
            yield process
        finally:
            _close(process)


def _close(process: subprocess.Popen[str]) -> None:
    stop(process)
    for pipe in (process.stdout, process.stderr):
        if pipe:
            pipe.close()


def stop(process: Any) -> None:
    """End a process, or a fork of a warm one, by force where it does not listen."""
    process.terminate()
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
