"""One release behind real HTTP: a server with the overlay off, then one with it on, and the same requests
to both.

    python -m tests.serving.one vllm-0.33.0 --out FILE

Runs in any Python; the servers and the client run in the engine environment.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from engine_overlay.verify import releases
from tests.matrix import environment
from tests.matrix.store import write
from tests.serving import requests, tokens

START_SECONDS = 600
"""Longest time for a server to answer; one takes about 8 s of CPU, more when its byte code is not cached
yet.
"""


class ServerFailed(RuntimeError):
    """The server stopped before it answered, or did not answer in time; carries the end of its log."""


class Server:
    """An API server process of a release, as a context manager. Raises ServerFailed when it does not come
    up.
    """

    MODULE = "tests.serving.server"

    def __init__(
        self,
        release: releases.Release,
        folder: Path,
        *,
        overlay: bool,
        parsers: tuple[str | None, str | None] = ("qwen3", "qwen3_coder"),
    ) -> None:
        self.release, self.folder, self.overlay = release, folder, overlay
        self.parsers = parsers
        self.port = _free_port()
        self.modules_file, self.status_folder = folder / "modules.json", folder / "status"
        self.log = folder / "server.log"

    def model(self) -> Path:
        """The folder of the model whose tokenizer it has."""
        return model_folder()

    def __enter__(self) -> Server:
        model = self.model()
        arguments = ["--model", str(model), "--served-model-name", requests.MODEL, "--host", "127.0.0.1"]
        arguments += ["--port", str(self.port), "--max-model-len", "4096"]
        arguments += ["--enable-auto-tool-choice"] if self.parsers[1] else []
        flags = zip(("--reasoning-parser", "--tool-call-parser"), self.parsers, strict=True)
        arguments += [word for flag, name in flags if name for word in (flag, name)]
        command = ["-m", self.MODULE, self.release.engine]
        command += ["--modules-file", str(self.modules_file), "--", *arguments]
        platform = Path(__file__).with_name("platform")
        # The servers of two releases must not share the engine's own caches and configuration folders.
        own = {"VLLM_CACHE_ROOT": str(self.folder), "APHRODITE_CACHE_ROOT": str(self.folder)}
        own |= {"ENGINE_OVERLAY_STATE_DIR": str(self.status_folder)}
        own |= {"VLLM_CPU_KVCACHE_SPACE": "1", "APHRODITE_CPU_KVCACHE_SPACE": "1"}
        variables = environment.variables(self.release.sources, overlay=self.overlay, more=own)
        variables["PYTHONPATH"] += os.pathsep + str(platform)
        with self.log.open("wb") as log:
            self.process = environment.start(command, variables, log)
        try:
            self._wait()
        except BaseException:
            self.__exit__()
            raise
        return self

    def _wait(self) -> None:
        until = time.monotonic() + START_SECONDS
        while time.monotonic() < until:
            if self.process.poll() is not None:
                raise ServerFailed(
                    f"{self.release.label}: exit status {self.process.returncode}\n{self._tail()}"
                )
            with socket.socket() as probe:
                probe.settimeout(1)
                if probe.connect_ex(("127.0.0.1", self.port)) == 0:
                    return
            time.sleep(0.1)
        raise ServerFailed(f"{self.release.label}: no answer in {START_SECONDS} s\n{self._tail()}")

    def _tail(self) -> str:
        return "\n".join(self.log.read_text(encoding="utf-8", errors="replace").splitlines()[-30:])

    def modules(self) -> dict[str, list[str]]:
        """What of the overlay is imported and hooked in the server. Raises ServerFailed when it does not
        say.
        """
        self.modules_file.unlink(missing_ok=True)
        self.process.send_signal(signal.SIGUSR1)
        for _ in range(200):
            if self.modules_file.is_file():
                return json.loads(self.modules_file.read_text(encoding="utf-8"))
            time.sleep(0.05)
        raise ServerFailed(f"{self.release.label}: no answer to SIGUSR1\n{self._tail()}")

    def status(self) -> dict[str, Any] | None:
        """The status file that the overlay keeps for the server process; None when there is none."""
        files = list(self.status_folder.glob(f"{self.process.pid}-*.json"))
        return json.loads(files[0].read_text(encoding="utf-8")) if files else None

    def __exit__(self, *_: object) -> None:
        self.process.terminate()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def model_folder() -> Path:
    """The folder of the tiny model; the same for all servers, because its path shows in their answers."""
    folder = releases.cache() / "tiny-model"
    with tempfile.TemporaryDirectory(dir=releases.cache()) as fresh:
        tokens.write_model(Path(fresh))
        folder.mkdir(exist_ok=True)
        for file in Path(fresh).iterdir():
            file.replace(folder / file.name)
    return folder


def _free_port() -> int:
    with socket.socket() as chosen:
        chosen.bind(("127.0.0.1", 0))
        return chosen.getsockname()[1]


def run(label: str) -> dict[str, Any]:
    """``{"release", "engine", "off": side, "on": side, "different": {request: first differing line}}``.

    A side is ``{"requests": {name: {"status", "answer" or "error", "wrong"}}, "modules", "patches",
    "problems"}``. Raises ServerFailed.
    """
    release = releases.named(label)
    releases.fetch(release)
    result: dict[str, Any] = {"release": release.label, "engine": release.engine}
    raw: dict[str, dict[str, str]] = {}
    for side in ("off", "on"):
        folder = Path(tempfile.mkdtemp(prefix="engine-overlay-serving-"))
        try:
            with Server(release, folder, overlay=side == "on") as server:
                answers = _ask(server)
                status = server.status()
                result[side] = {
                    "requests": {name: _judged(name, *got) for name, got in answers.items()},
                    "modules": server.modules(),
                    "way": status["way"] if status else None,
                    "patches": {p["id"]: [p["verdict"], p["state"]] for p in status["patches"]}
                    if status
                    else {},
                    "problems": status["problems"] if status else [],
                }
            raw[side] = {name: requests.comparable(body) for name, (_, body) in answers.items()}
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    result["different"] = {
        name: _first_difference(raw["off"][name], raw["on"][name])
        for name in raw["off"]
        if raw["off"][name] != raw["on"][name]
    }
    return result


def _ask(server: Server) -> dict[str, tuple[int, str]]:
    """Send all requests from a client process in the engine environment; name -> (HTTP status, body)."""
    out = server.folder / "answers.json"
    command = ["-m", "tests.serving.client", server.release.engine, str(server.port), str(out)]
    environment.run(command, server.release.sources, overlay=False, check=True)
    return {
        name: (status, body) for name, (status, body) in json.loads(out.read_text(encoding="utf-8")).items()
    }


def _judged(name: str, status: int, body: str) -> dict[str, Any]:
    request = next(request for request in requests.all_requests() if request.name == name)
    if status != 200:
        return {"status": status, "error": body[:500], "wrong": {"status": status}}
    try:
        seen = requests.answer(request, body)
        return {"status": status, "answer": seen, "wrong": requests.wrong(request, seen)}
    except ValueError as error:
        return {"status": status, "error": str(error)[:500], "wrong": {"error": str(error)[:500]}}


def _first_difference(off: str, on: str) -> str:
    pairs = zip(off.splitlines() + [""], on.splitlines() + [""], strict=False)
    return next((f"off {a[:200]!r}, on {b[:200]!r}" for a, b in pairs if a != b), "one is longer")


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.serving.one", description=__doc__.partition("\n")[0]
    )
    parser.add_argument("release", help="label of a pinned release")
    parser.add_argument("--out", type=Path, required=True, help="file for the JSON")
    options = parser.parse_args(arguments)
    write(options.out, run(options.release))
    return 0


if __name__ == "__main__":
    sys.exit(main())
