"""The process that the others are forked from: ``python server.py SOCKET MODULE [MODULE ...]``.

It imports the modules, those that it can, then listens on the Unix socket. Each connection is one run: a JSON line
that says what to run (see :mod:`tests.warm.client`), with standard input, output and error as passed file
descriptors. The answers are the process's id and, at its end, its exit status. It ends with the one that started it,
whose end it sees on its standard input. Only the standard library is used, and nothing of the overlay is imported.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import io
import json
import os
import runpy
import selectors
import signal
import socket
import sys
import threading
import traceback
from typing import Any

LONGEST = 1 << 20
_RESET = (signal.SIGCHLD, signal.SIGTERM, signal.SIGPIPE, signal.SIGUSR1, signal.SIGUSR2)


def main(place: str, *modules: str) -> None:
    for name in modules:
        # One that cannot be imported here is imported, or not, by the run that needs it.
        with contextlib.suppress(Exception):
            importlib.import_module(name)
    # What is there stays: the collector of a fork need not look at it, and so writes to none of its pages.
    gc.collect()
    gc.freeze()
    door = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    door.bind(place)
    door.listen(64)
    ended, wake = socket.socketpair()
    for end in (ended, wake):
        end.setblocking(False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake.fileno())
    running: dict[int, socket.socket] = {}
    with selectors.DefaultSelector() as events:
        for source in (door, ended, 0):
            events.register(source, selectors.EVENT_READ)
        print("ready", flush=True)
        while True:
            for key, _ in events.select():
                if key.fileobj is door:
                    _begin(door, running, [events, ended, wake])
                elif key.fileobj is ended:
                    ended.recv(4096)
                    _reap(running)
                elif not os.read(0, 1):
                    return


def _begin(door: socket.socket, running: dict[int, socket.socket], ours: list[Any]) -> None:
    caller, _ = door.accept()
    line, descriptors, _, _ = socket.recv_fds(caller, LONGEST, 3)
    pid = os.fork()
    if not pid:
        signal.set_wakeup_fd(-1)
        for end in (*ours, door, caller, *running.values()):
            end.close()
        _run(json.loads(line), descriptors)
    running[pid] = caller
    for descriptor in descriptors:
        os.close(descriptor)
    caller.send(b"%d" % pid)


def _reap(running: dict[int, socket.socket]) -> None:
    with contextlib.suppress(ChildProcessError):
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            pid, status = ended
            if caller := running.pop(pid, None):
                with contextlib.suppress(OSError):
                    caller.send(b"%d" % os.waitstatus_to_exitcode(status))
                caller.close()


def _run(asked: dict[str, Any], descriptors: list[int]) -> None:
    """Become the process that was asked for; does not return."""
    code = 1
    try:
        for number in _RESET:
            signal.signal(number, signal.SIG_DFL if number != signal.SIGPIPE else signal.SIG_IGN)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        _streams(descriptors)
        os.chdir(asked["cwd"])
        os.environ.clear()
        os.environ.update(asked["env"])
        arguments = asked["arguments"]
        paths = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
        first = os.getcwd() if arguments[0] == "-m" else "" if arguments[0] == "-c" else os.path.dirname(arguments[0])
        sys.path[:] = [first, *paths, *sys.path[1:]]
        importlib.invalidate_caches()
        sys.argv = ["-c", *arguments[2:]] if arguments[0] == "-c" else arguments[:]
        # The start-up file, as site runs it: before anything else.
        if asked["startup"]:
            exec(asked["startup"], {})
        code = _status(arguments)
    except BaseException:
        traceback.print_exc()
    finally:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):
                stream.flush()
        os._exit(code)


def _status(arguments: list[str]) -> int:
    """Run it to its end as an interpreter does, threads and exit functions too; the exit status."""
    code = 0
    main = sys.modules["__main__"] = type(sys)("__main__")
    main.__dict__["__builtins__"] = __builtins__
    try:
        if arguments[0] == "-m":
            sys.argv = arguments[1:]
            runpy._run_module_as_main(arguments[1])
        elif arguments[0] == "-c":
            exec(compile(arguments[1], "<string>", "exec"), main.__dict__)
        else:
            main.__file__ = arguments[0]
            with open(arguments[0], "rb") as file:
                exec(compile(file.read(), arguments[0], "exec"), main.__dict__)
    except SystemExit as left:
        code = left.code if isinstance(left.code, int) else 0 if left.code is None else 1
        if code == 1 and not isinstance(left.code, int):
            print(left.code, file=sys.stderr)
    except BaseException:
        code = 1
        sys.excepthook(*sys.exc_info())
    threading._shutdown()
    atexit._run_exitfuncs()
    return code


def _streams(descriptors: list[int]) -> None:
    for number, descriptor in enumerate(descriptors):
        os.dup2(descriptor, number)
    for descriptor in descriptors:
        os.close(descriptor)
    sys.stdin = sys.__stdin__ = io.TextIOWrapper(open(0, "rb", closefd=False), encoding="utf-8")
    for number, name, errors in ((1, "stdout", "strict"), (2, "stderr", "backslashreplace")):
        raw = open(number, "wb", closefd=False)
        line = number == 2 or os.isatty(number)
        stream = io.TextIOWrapper(raw, encoding="utf-8", errors=errors, newline="\n", line_buffering=line)
        stream.mode = "w"
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)


if __name__ == "__main__":
    main(*sys.argv[1:])
