"""A state folder as an attacker on the machine would prepare it, and what he would do as another user."""

from __future__ import annotations

import json
import os
import shutil
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from engine_overlay import identity

NOBODY = 65534

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user to try this")


@contextmanager
def shared(mode: int = 0o1777) -> Iterator[Path]:
    """A folder that every user can reach, which pytest's own is not."""
    folder = Path(tempfile.mkdtemp(prefix="overlay-shared-"))
    folder.chmod(mode)
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


def by(uid: int, what: Callable[[], Any], *, stay: bool = False) -> int:
    """Do something in a child of this user; returns its process id, after its end unless it is to stay."""
    ready, done = os.pipe()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.setgroups([])
            os.setgid(uid)
            os.setuid(uid)
            kept = what()
            os.write(done, b"x")
            if stay:
                time.sleep(120)
            code = 0 if kept is not False else 2
        finally:
            os._exit(code)
    os.close(done)
    assert os.read(ready, 1) == b"x", "the other user could not do it"
    os.close(ready)
    if not stay:
        os.waitpid(child, 0)
    return child


def end(child: int) -> None:
    os.kill(child, 9)
    os.waitpid(child, 0)


def report(pid: int | None = None, **more: Any) -> dict[str, Any]:
    patch = {"id": "louder", "verdict": "apply", "reason": "known", "state": "applied", "state_reason": ""}
    fields = {"pid": os.getpid() if pid is None else pid, "argv": ["vllm", "serve"], "time": 0, "way": "startup"}
    return fields | {"role": "API server", "engine": {"name": "vllm", "version": "0.33.0"}, "patches": [patch]} | more


def put(folder: Path, name: object, data: object, mode: int = 0o644) -> Path:
    path = folder / f"{name}.json"
    path.write_bytes(data if isinstance(data, bytes) else json.dumps(data).encode())
    path.chmod(mode)
    return path


def me() -> str:
    return str(identity.this())


def bind(server: socket.socket, path: Path) -> None:
    """Give the socket a name in the folder, which may be longer than an address of one may be."""
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        server.bind(f"/proc/self/fd/{folder}/{path.name}")
    finally:
        os.close(folder)


@contextmanager
def listening(path: Path, serve: Callable[[socket.socket], None]) -> Iterator[None]:
    """A socket of this process that is served by ``serve``, a thread for each connection."""
    server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    bind(server, path)
    server.listen(16)

    def one(client: socket.socket) -> None:
        with client:
            try:
                serve(client)
            except OSError:
                pass

    def accept() -> None:
        while True:
            try:
                client = server.accept()[0]
            except OSError:
                return
            threading.Thread(target=one, args=(client,), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    try:
        yield
    finally:
        server.shutdown(socket.SHUT_RDWR)
        server.close()
