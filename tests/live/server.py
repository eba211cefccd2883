"""The released engine's own API server, started on a free port and taken down with all its processes."""

from __future__ import annotations

import contextlib
import ctypes
import http.client
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from . import environment

MODEL = "tiny"
START_TIMEOUT = 600.0
"""Seconds. Half a minute is usual; a first start compiles byte code, and the machine may be busy."""

SCRIPTED = Path(__file__).with_name("scripted_logits.py")
_SERVER = ("-m", "vllm.entrypoints.openai.api_server")
_PR_SET_PDEATHSIG = 1


@dataclass(frozen=True, slots=True)
class Server:
    """A running server: where it listens, its process group, and the log of all its processes."""

    port: int
    group: int
    log: Path

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def processes(self) -> dict[int, str]:
        """Process id to command line, of every living Python process of the server."""
        found = {}
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit():
                continue
            with contextlib.suppress(OSError, ProcessLookupError):
                if os.getpgid(int(entry.name)) == self.group:
                    words = (entry / "cmdline").read_bytes().split(b"\0")
                    found[int(entry.name)] = b" ".join(words).decode().strip()
        return found


@contextlib.contextmanager
def serve(
    python: Path,
    model: Path,
    *arguments: str,
    variables: Mapping[str, str] | None = None,
    reasoning_parser: str = "qwen3",
    tool_call_parser: str = "qwen3_coder",
    pairs: Sequence[str] = (),
    processor: Path = SCRIPTED,
    beside: Sequence[Path] = (),
) -> Iterator[Server]:
    """Start the server with ``arguments`` added to its command line and ``variables`` to its environment.

    ``pairs`` of parsers get an app each beside that of the two parsers named; see :mod:`tests.live.parser_pairs`.
    ``processor`` is the file with the class ``Scripted`` that says what the model answers. ``beside`` are folders that
    come first on the server's PYTHONPATH.

    Yields when it is healthy. Raises RuntimeError with the end of its log when it stops or does not get
    there; the log is removed only after a use without an error.
    """
    folder = Path(tempfile.mkdtemp(prefix="engine-overlay-live-"))
    for file in (processor, *(Path(__file__).with_name(name) for name in ("parser_pairs.py", "hands.py"))):
        shutil.copy(file, folder)
    log = folder / "server.log"
    port = _free_port()
    command = [
        str(python), *([str(folder / "parser_pairs.py"), " ".join(pairs)] if pairs else _SERVER),
        "--model", str(model), "--served-model-name", MODEL, "--host", "127.0.0.1", "--port", str(port),
        "--reasoning-parser", reasoning_parser,
        "--tool-call-parser", tool_call_parser, "--enable-auto-tool-choice",
        "--logits-processors", f"{processor.stem}:Scripted",
        "--enforce-eager", "--max-num-seqs", "32", *arguments,
    ]  # fmt: skip
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            cwd=folder,
            env=environment.variables()
            | {"PYTHONPATH": os.pathsep.join(map(str, (*beside, folder)))}
            | dict(variables or {}),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
            preexec_fn=_end_with_parent,
        )
    try:
        _wait_until_healthy(process, port, log)
        yield Server(port, process.pid, log)
    finally:
        _end_group(process)
    shutil.rmtree(folder, ignore_errors=True)


def tail(log: Path, lines: int = 40) -> str:
    """The last lines of a log."""
    return "\n".join(log.read_text(errors="replace").splitlines()[-lines:])


def _end_with_parent() -> None:
    """In the child: ask Linux for a SIGTERM when the parent dies, as no ``finally`` runs in a killed test run."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def _wait_until_healthy(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    end = time.monotonic() + START_TIMEOUT
    while time.monotonic() < end:
        if process.poll() is not None:
            raise _failed(f"it ended with status {process.returncode}", log)
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
        with contextlib.suppress(OSError, http.client.HTTPException):
            connection.request("GET", "/health")
            if connection.getresponse().status == 200:
                return
        connection.close()
        time.sleep(0.25)
    raise _failed(f"not healthy after {START_TIMEOUT:.0f} s", log)


def _failed(reason: str, log: Path) -> RuntimeError:
    return RuntimeError(f"engine-overlay: live server: {reason}; its log {log} ends:\n{tail(log)}")


def _end_group(process: subprocess.Popen[bytes]) -> None:
    """Ask the server to stop, then end whatever is left of its process group."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=15)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
