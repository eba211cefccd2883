"""Answers ``engine-overlay status`` from inside a running process, so that what it says is true at that moment.

Each process with an engine in it listens on a socket beside its status file, which only its own user can open. One
idle daemon thread waits there; where it cannot be made, the file is all there is.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

TIMEOUT_S = 3.0
"""How long a process may take to answer: one that is stopped, or holds the GIL, does not."""

_listening: tuple[int, Path] | None = None


def path_of(place: Path, pid: int) -> Path:
    return place / f"{pid}.sock"


def listen(place: Path, report: Callable[[], dict[str, Any]]) -> None:
    """Start to answer in this process, once (and once more in each forked child). Raises OSError when it cannot."""
    global _listening
    if _listening is not None and _listening[0] == os.getpid():
        return
    path = path_of(place, os.getpid())
    path.unlink(missing_ok=True)
    server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with _short(place) as short:
            server.bind(str(short / path.name))
        path.chmod(0o600)
        server.listen(4)
    except OSError:
        server.close()
        raise
    _listening = (os.getpid(), path)
    threading.Thread(target=_answer, args=(server, report), name="engine-overlay-status", daemon=True).start()


def _answer(server: socket.socket, report: Callable[[], dict[str, Any]]) -> None:
    while True:
        try:
            client, _ = server.accept()
        except OSError:
            return
        # Whoever asks may be gone, and a report may meet a half-imported module: neither ends the thread.
        with client, contextlib.suppress(Exception):
            client.settimeout(TIMEOUT_S)
            client.sendall(json.dumps(report()).encode())


def stop() -> None:
    """Take the socket's file away; the thread ends with its process."""
    if _listening is not None and _listening[0] == os.getpid():
        with contextlib.suppress(OSError):
            _listening[1].unlink(missing_ok=True)


def ask(place: Path, pid: int) -> dict[str, Any] | None:
    """The report of a running process, now; None when it does not answer."""
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client, _short(place) as short:
            client.settimeout(TIMEOUT_S)
            client.connect(str(short / path_of(place, pid).name))
            parts = []
            while part := client.recv(65536):
                parts.append(part)
        return json.loads(b"".join(parts))
    except (OSError, ValueError):
        return None


@contextlib.contextmanager
def _short(place: Path) -> Iterator[Path]:
    """The folder under a name that fits into a socket's address, which has room for 107 characters."""
    if len(str(place)) < 90 or not Path("/proc/self/fd").is_dir():
        yield place
        return
    folder = os.open(place, os.O_RDONLY)
    try:
        yield Path(f"/proc/self/fd/{folder}")
    finally:
        os.close(folder)
