"""A running process is asked itself: what it answers is true at that moment."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from engine_overlay import live, reach, status
from tests.core.support import engine, louder_patch, third_party
from tests.core.test_cli import cli

START = (
    "from engine_overlay import importer, commit; importer.install('api'); import vllm.greeting as g, sys\n"
    "print('ready', flush=True)\n"
    "for line in sys.stdin:\n"
    "    exec(line); print('done', flush=True)\n"
)


@pytest.fixture
def folder(tmp_path):
    return third_party(engine(tmp_path), "loud_patches", louder_patch(tmp_path))


class Engine:
    """A process with the small engine in it, which does what it is told line by line."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process, self.pid = process, process.pid

    def do(self, line: str) -> None:
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        assert self.process.stdout.readline() == "done\n"


@contextmanager
def running(folder, **env: str) -> Iterator[Engine]:
    clean = {k: v for k, v in os.environ.items() if not k.startswith("ENGINE_OVERLAY")}
    env = {**clean, "PYTHONPATH": str(folder), "ENGINE_OVERLAY_STATE_DIR": str(folder / "state"), **env}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", START], env=env, text=True, **pipes) as process:
        assert process.stdout.readline() == "ready\n"
        yield Engine(process)
        process.stdin.close()


def louder(folder) -> dict:
    (report,) = json.loads(cli(folder, "status", "--json").stdout)
    return next(patch for patch in report["patches"] if patch["id"] == "louder") | {"live": report["live"]}


def test_status_follows_undo_redo_and_a_wrapper_of_somebody_else(folder):
    with running(folder) as process:
        seen = [louder(folder)["state"]]
        for line in (
            "commit.undo('louder')",
            "commit.redo('louder')",
            "mine = g.Greeter.greet; g.Greeter.greet = lambda self: 'x'",
            "g.Greeter.greet = mine",
        ):
            process.do(line)
            seen.append(louder(folder)["state"])
    assert seen == ["applied", "undone", "applied", "displaced", "applied"]


def test_a_displaced_patch_is_an_exit_code(folder):
    with running(folder) as process:
        assert cli(folder, "status").returncode == 0
        process.do("g.Greeter.greet = lambda self: 'x'")
        done = cli(folder, "status")
    assert done.returncode == 1 and "displaced" in done.stdout


def test_a_process_that_does_not_answer_is_shown_as_it_was(folder):
    with running(folder) as process:
        os.kill(process.pid, signal.SIGSTOP)
        try:
            begin = time.monotonic()
            done = cli(folder, "status")
            assert time.monotonic() - begin < 3 * live.TIMEOUT_S
            assert "it does not answer; this is what it wrote at" in done.stdout
        finally:
            os.kill(process.pid, signal.SIGCONT)


def test_a_process_that_was_killed_leaves_nothing_behind(folder):
    with running(folder) as process:
        process.process.kill()
    assert len(list((folder / "state").iterdir())) == 2
    assert cli(folder, "status").returncode == 1
    assert list((folder / "state").iterdir()) == []


def test_a_folder_with_a_long_name_is_no_obstacle(folder):
    state = folder / ("long" * 30)
    with running(folder, ENGINE_OVERLAY_STATE_DIR=str(state)) as process:
        assert live.ask(state, process.pid)["pid"] == process.pid
        assert (state / f"{process.pid}.sock").stat().st_mode & 0o777 == 0o600


def test_a_forked_child_answers_for_itself(folder):
    with running(folder) as process:
        process.do("import os, time; child = os.fork(); child or time.sleep(30)")
        reports = json.loads(cli(folder, "status", "--json").stdout)
        process.do("os.kill(child, 9)")
    assert len(reports) == 2 and all(report["live"] for report in reports)
    assert len({report["pid"] for report in reports}) == 2


@pytest.mark.parametrize(
    ("name", "role"),
    [
        ("MainProcess", "main"),
        ("EngineCore", "engine core"),
        ("EngineCore_DP1", "engine core (EngineCore_DP1)"),
        ("VllmWorker-0", "worker (VllmWorker-0)"),
        ("ApiServer_2", "API server (ApiServer_2)"),
        ("Other", "Other"),
    ],
)
def test_the_role_is_read_from_the_names_that_engines_give(monkeypatch, name, role):
    import multiprocessing

    monkeypatch.setattr(multiprocessing.current_process(), "_name", name)
    assert reach.role() == role


def test_folders_of_other_users_are_found_and_closed_ones_are_named(tmp_path, monkeypatch):
    monkeypatch.setattr(status.tempfile, "gettempdir", lambda: str(tmp_path))
    mine = status.folder()
    for name in ("engine-overlay-4242", "engine-overlay-4243", "engine-overlay-notes"):
        (tmp_path / name).mkdir()
    monkeypatch.setattr(status.os, "access", lambda path, mode: path.name != "engine-overlay-4243")
    assert status.places() == ([mine, tmp_path / "engine-overlay-4242"], [tmp_path / "engine-overlay-4243"])
