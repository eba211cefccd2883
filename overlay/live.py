"""Answers ``engine-overlay status`` from inside a running process, so that what it says is true at that moment.

Each process with an engine in it listens on a socket beside its status file, which only its own user can open. One
idle daemon thread waits there; where it cannot be made, the file is all there is. Whoever asks trusts nobody: all
answers together have a deadline, each has a size, and the kernel says which process of which user is at the other end.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import selectors
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from engine_overlay.statefolder import MAX_BYTES, Folder

TIMEOUT_S = 3.0
"""How long a process may take to answer, from the first byte to the last: one that is stopped does not."""
AT_ONCE = 64
"""How many processes are asked side by side, so that one that stalls keeps no other waiting."""

_PAUSE_S = 0.02

_listening: tuple[int, socket.socket, str] | None = None


def listen(folder: Folder, stem: str, report: Callable[[], dict[str, Any]]) -> None:
    """Start to answer in this process, once. Raises OSError when it cannot."""
    global _listening
    if _listening is not None and _listening[0] == os.getpid():
        return
    server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        # Before it has a name, so that there is no moment in which others could open it.
        os.fchmod(server.fileno(), 0o600)
        with folder.part(stem) as part:
            server.bind(folder.address(part))
            server.listen(16)
            folder.move(part, f"{stem}.sock")
    except BaseException:
        server.close()
        raise
    _listening = (os.getpid(), server, stem)
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


def forked() -> None:
    """Let go of the parent's socket in a forked child: it must not keep it open when the parent has ended."""
    global _listening
    if _listening is not None:
        _listening[1].close()
        _listening = None


def stem() -> str | None:
    """The name that this process listens under; None when it does not."""
    return _listening[2] if _listening is not None and _listening[0] == os.getpid() else None


@dataclass(slots=True)
class Answer:
    """What came from a socket. ``pid`` and ``uid`` are the kernel's word; ``pid`` is 0 where none is seen from here."""

    data: bytes | None = None
    pid: int = 0
    uid: int | None = None
    refused: bool = False
    """Nobody listens there any more."""
    too_long: bool = False


@dataclass(slots=True)
class _Question:
    name: str
    client: socket.socket
    answer: Answer = field(default_factory=Answer)
    parts: bytearray = field(default_factory=bytearray)
    connected: bool = False


def ask_all(folder: Folder, stems: Iterable[str], deadline: float) -> dict[str, Answer]:
    """What the processes answer, by name, at ``deadline`` of the monotonic clock at the latest."""
    waiting = [(one, f"{one}.sock") for one in stems]
    found: dict[str, Answer] = {}
    while waiting and time.monotonic() < deadline:
        batch, waiting = waiting[:AT_ONCE], waiting[AT_ONCE:]
        found |= _ask(folder, batch, min(deadline, time.monotonic() + TIMEOUT_S))
    return found | {one: Answer() for one, _ in waiting}


def _ask(folder: Folder, batch: list[tuple[str, str]], deadline: float) -> dict[str, Answer]:
    questions = {}
    with contextlib.ExitStack() as stack, selectors.DefaultSelector() as selector:
        for one, name in batch:
            client = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
            client.setblocking(False)
            questions[one] = _Question(name, client)
        open_ = list(questions.values())
        while open_ and (left := deadline - time.monotonic()) > 0:
            for question in [q for q in open_ if not q.connected]:
                if _connect(folder, question, selector):
                    open_.remove(question)
            if not open_:
                break
            # One whose queue is full is tried again.
            full = any(not q.connected for q in open_)
            for key, _ in selector.select(min(left, _PAUSE_S) if full else left):
                if _read(key.data):
                    selector.unregister(key.data.client)
                    open_.remove(key.data)
    return {one: question.answer for one, question in questions.items()}


def _connect(folder: Folder, question: _Question, selector: selectors.BaseSelector) -> bool:
    """Try to connect; True when no answer will come."""
    try:
        # What is no socket says nothing about its process, and a link is not followed.
        if not folder.is_socket(question.name):
            return True
        question.client.connect(folder.address(question.name))
        question.answer.pid, question.answer.uid = _peer(question.client)
    except BlockingIOError:
        return False
    except OSError as error:
        question.answer.refused = error.errno == errno.ECONNREFUSED
        return True
    question.connected = True
    selector.register(question.client, selectors.EVENT_READ, question)
    return False


def _read(question: _Question) -> bool:
    """Take what is there; True when the answer has ended."""
    try:
        part = question.client.recv(65536)
    except BlockingIOError:
        return False
    except OSError:
        return True
    question.parts += part
    if len(question.parts) > MAX_BYTES:
        question.parts.clear()
        question.answer.too_long = True
        return True
    if part:
        return False
    question.answer.data = bytes(question.parts) or None
    return True


def _peer(client: socket.socket) -> tuple[int, int | None]:
    """The process and the user that listen at the other end, as the kernel knows them."""
    if not hasattr(socket, "SO_PEERCRED"):
        return 0, None
    pid, uid, _ = struct.unpack("3i", client.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i")))
    return pid, uid & 0xFFFFFFFF
