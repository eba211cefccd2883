"""Starts forks of a warm process; what it gives is used like subprocess.Popen and subprocess.run."""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import select
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

_SERVER = Path(__file__).with_name("server.py")


class Process:
    """A fork that runs; ``returncode`` is there as soon as ``poll`` or ``wait`` has seen its end."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self.pid = int(connection.recv(64))
        self.returncode: int | None = None

    def poll(self) -> int | None:
        return self._end(0)

    def wait(self, timeout: float | None = None) -> int:
        code = self._end(timeout)
        if code is None:
            raise subprocess.TimeoutExpired(f"process {self.pid}", timeout or 0)
        return code

    def _end(self, timeout: float | None) -> int | None:
        if self.returncode is None and select.select([self._connection], [], [], timeout)[0]:
            said = self._connection.recv(64)
            self._connection.close()
            # Without a word: the warm process itself is gone.
            self.returncode = int(said) if said else -signal.SIGKILL
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


class Warm:
    """A process of ``interpreter`` that has imported ``modules``; it is started at the first use.

    ``startup`` is the code of start-up files, which each fork runs when it has got its own environment variables.
    """

    def __init__(
        self, interpreter: str | Path, modules: Sequence[str], env: Mapping[str, str], cwd: Path, startup: str = ""
    ) -> None:
        self._command = [str(interpreter), str(_SERVER)]
        self._modules, self._env, self._cwd, self._startup = list(modules), dict(env), cwd, startup
        self._folder: str | None = None
        self._lock = threading.Lock()

    def popen(
        self, arguments: Sequence[str], *, env: Mapping[str, str], stdin: Any = None, stdout: Any, stderr: Any,
        cwd: str | Path | None = None,
    ) -> Process:  # fmt: skip
        """Start what ``python ARGUMENTS`` would; the streams are file descriptors or files."""
        with self._lock:
            place = self._start()
        asked = {
            "arguments": [str(word) for word in arguments],
            "env": {name: str(value) for name, value in env.items()},
            "cwd": str(cwd or self._cwd),
            "startup": self._startup,
        }
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
        connection.connect(place)
        with open(os.devnull) as nothing:
            streams = [s if isinstance(s, int) else s.fileno() for s in (stdin or nothing, stdout, stderr)]
            socket.send_fds(connection, [json.dumps(asked).encode()], streams)
        return Process(connection)

    def run(
        self, arguments: Sequence[str], *, env: Mapping[str, str], cwd: str | Path | None = None,
        timeout: float = 600, input: str = "", together: bool = False,
    ) -> subprocess.CompletedProcess[str]:  # fmt: skip
        """What subprocess.run gives with captured text; ``together`` puts standard error into the output."""
        with contextlib.ExitStack() as stack:
            given, out, err = (stack.enter_context(tempfile.TemporaryFile("w+b")) for _ in range(3))
            given.write(input.encode())
            given.seek(0)
            stderr = out if together else err
            process = self.popen(arguments, env=env, cwd=cwd, stdin=given, stdout=out, stderr=stderr)
            try:
                code = process.wait(timeout)
            finally:
                process.kill()
            for file in (out, err):
                file.seek(0)
            return subprocess.CompletedProcess(list(arguments), code, out.read().decode(), err.read().decode())

    def _start(self) -> str:
        if self._folder is None:
            self._folder = tempfile.mkdtemp(prefix="engine-overlay-warm-")
            place = f"{self._folder}/socket"
            self._process = subprocess.Popen(
                [*self._command, place, *self._modules],
                env=self._env, cwd=self._cwd, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            )  # fmt: skip
            atexit.register(self.close)
            if self._process.stdout.readline() != b"ready\n":
                raise RuntimeError(f"the warm process did not start: {' '.join(self._command)}")
        return f"{self._folder}/socket"

    def close(self) -> None:
        if self._folder is not None:
            self._process.stdin.close()
            self._process.wait()
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None
