"""Servers of a release with its own command, core and front ends, on a scripted executor; see :mod:`front_executor`."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from engine_overlay import reading
from engine_overlay.verify import releases
from tests.matrix import environment
from tests.serving import one, tokens

RELEASE = releases.named("vllm-0.33.0")
EXECUTOR = ("--distributed-executor-backend", "tests.serving.front_executor.Scripted")
MODEL = "tiny"
SECONDS = 300
"""Longest time for a server to be healthy; one takes about 15 s of CPU."""


@dataclass(frozen=True)
class Front:
    """A running server: what it is asked through, and what each of its processes says of itself."""

    port: int
    folder: Path

    def post(self, path: str, body: Mapping[str, Any]) -> httpx.Response:
        url = f"http://127.0.0.1:{self.port}{path}"
        return httpx.post(url, json={"model": MODEL, **body}, timeout=60, trust_env=False)

    def chat(self, text: str, **more: Any) -> dict[str, Any]:
        """The answer to a chat request for which the model spells ``text`` byte by byte."""
        body = {"messages": [{"role": "user", "content": "x"}], "max_tokens": 400, "vllm_xargs": script(text)}
        got = self.post("/v1/chat/completions", body | more)
        assert got.status_code == 200, got.text
        return got.json()["choices"][0]["message"]

    def metrics(self) -> str:
        return httpx.get(f"http://127.0.0.1:{self.port}/metrics", timeout=60, trust_env=False).text

    def reports(self) -> dict[str, dict[str, Any]]:
        """Role -> report, as ``engine-overlay status`` has them, of the processes that answer now."""
        found = reading.gather(self.folder / "status").reports
        assert all(report["live"] for report in found)
        return {report["role"].partition(" (")[0]: report for report in found}

    def lines(self) -> list[str]:
        """What the overlay logged at the start of each process."""
        logs = [path.read_text(errors="replace") for path in sorted(self.folder.glob("*.log"))]
        return [line for log in logs for line in log.splitlines() if "engine-overlay: vllm 0.33.0: " in line]


def script(text: str) -> dict[str, str]:
    return {"script": json.dumps([[token] for token in tokens.spelled(text)])}


def free_port() -> int:
    with socket.socket() as chosen:
        chosen.bind(("127.0.0.1", 0))
        return chosen.getsockname()[1]


def serve(*flags: str, port: int | None = None) -> list[str]:
    """The words of ``vllm serve`` with these flags, in the release's environment."""
    asked = ["--port", str(port)] if port else []
    words = ["vllm", "serve", str(one.model_folder()), "--served-model-name", MODEL, "--max-model-len", "4096"]
    words += ["--host", "127.0.0.1", *asked, *flags]
    return [str(environment.python()), "-m", "tests.serving.front", *words]


PARSERS = ("--reasoning-parser", "qwen3", "--tool-call-parser", "qwen3_coder", "--enable-auto-tool-choice")


def variables(folder: Path, **more: str) -> dict[str, str]:
    own = {"VLLM_CACHE_ROOT": str(folder), "VLLM_CPU_KVCACHE_SPACE": "1", "ENGINE_OVERLAY_LOG": "info"}
    own |= {"ENGINE_OVERLAY_STATE_DIR": str(folder / "status"), "VLLM_LOGGING_LEVEL": "WARNING", **more}
    found = environment.variables(releases.fetch(RELEASE), overlay=True, more=own)
    found["PYTHONPATH"] += os.pathsep + str(Path(__file__).with_name("platform"))
    return found


@contextmanager
def started(folder: Path, port: int, *commands: Sequence[str], **more: str) -> Iterator[Front]:
    """Start these commands; yields when the server is healthy, and ends all their processes afterwards."""
    running = []
    try:
        for i, command in enumerate(commands):
            with (folder / f"{i}.log").open("wb") as log:
                running.append(
                    subprocess.Popen(
                        command, cwd=environment.ROOT, env=variables(folder, **more), stdin=subprocess.DEVNULL,
                        stdout=log, stderr=subprocess.STDOUT, start_new_session=True,
                    )
                )  # fmt: skip
        _wait(folder, port, running)
        yield Front(port, folder)
    finally:
        for sign in (signal.SIGTERM, signal.SIGKILL):
            for process in running:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, sign)
            for process in running:
                with suppress(subprocess.TimeoutExpired):
                    process.wait(10)


def _wait(folder: Path, port: int, running: list[subprocess.Popen[bytes]]) -> None:
    until = time.monotonic() + SECONDS
    while time.monotonic() < until:
        ended = [process.returncode for process in running if process.poll() is not None]
        if ended:
            break
        # A client of httpx costs more than what it asks for here.
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
        with suppress(OSError, http.client.HTTPException):
            connection.request("GET", "/health")
            if connection.getresponse().status == 200:
                return
        connection.close()
        time.sleep(0.25)
    tails = ["\n".join(log.read_text(errors="replace").splitlines()[-20:]) for log in sorted(folder.glob("*.log"))]
    raise one.ServerFailed("no healthy server:\n" + "\n---\n".join(tails))
