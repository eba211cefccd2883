"""``engine-overlay status`` of a live server with two workers: each process says what is true in it, at any time."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from tests.live import environment, scenario, tiny_model
from tests.live.server import MODEL, Server, serve

DISABLED = "reasoning_strings"
SERVERS = "spelled_markers"
WORKERS = "budget_behind_end"


@dataclass(frozen=True)
class Live:
    server: Server
    python: Path
    folder: Path

    def states(self) -> dict[str, dict[str, tuple[str, str | None]]]:
        """Role -> patch -> verdict and state, as the command says it now."""
        reports = scenario.status_by_command(self.python, self.folder)
        assert all(report["live"] for report in reports)
        return {r["role"]: {p["id"]: (p["verdict"], p["state"]) for p in r["patches"]} for r in reports}

    def state(self, patch: str) -> dict[str, str | None]:
        return {role: patches[patch][1] for role, patches in self.states().items()}

    def text(self, *more: str) -> subprocess.CompletedProcess[str]:
        command = [self.python.with_name("engine-overlay"), "status", "--state-dir", self.folder, *more]
        return subprocess.run(command, env=environment.variables(), capture_output=True, text=True, check=False)

    def do(self, what: str, patch: str) -> str:
        answer = httpx.get(f"{self.server.url}/hands/{what}/{patch}", timeout=30)
        assert answer.status_code == 200, answer.text
        return answer.text

    def tell_workers(self, what: str, patch: str) -> None:
        body = {"model": MODEL, "prompt": "a", "max_tokens": 1, "vllm_xargs": {"hands": f"{what} {patch}"}}
        answer = httpx.post(f"{self.server.url}/v1/completions", json=body, timeout=60)
        assert answer.status_code == 200, answer.text


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    python, state = environment.prepare(overlay=True), tmp_path_factory.mktemp("state")
    variables = {
        # Nothing is refused where another process of the server does what a patch is about.
        "ENGINE_OVERLAY": "strict",
        "ENGINE_OVERLAY_STATE_DIR": str(state),
        "ENGINE_OVERLAY_DISABLE": DISABLED,
        # A core for each worker: the engine wants a NUMA node for each by default.
        "VLLM_CPU_OMP_THREADS_BIND": "0|1",
    }
    flags = ("--tensor-parallel-size", "2", "--middleware", "hands.InServer", "--logits-processors", "hands:InWorker")
    model = tiny_model.make(environment.cache() / "live-model")
    with serve(python, model, *flags, variables=variables) as server:
        yield Live(server, python, state)


def test_every_process_has_its_role(live: Live):
    roles = set(live.states())
    assert roles == {"API server", "engine core", "worker (VllmWorker-0)", "worker (VllmWorker-1)"}
    pids = {report["pid"] for report in scenario.status_by_command(live.python, live.folder)}
    assert pids <= set(live.server.processes())


def test_what_is_in_is_in_where_it_works(live: Live):
    elsewhere = {role: "out of path" for role in live.states() if role != "API server"}
    assert live.state(SERVERS) == elsewhere | {"API server": "applied"}
    assert live.state(WORKERS)["API server"] == "out of path"
    assert {live.state(WORKERS)[role] for role in live.states() if role.startswith("worker")} == {"applied"}
    assert live.text().returncode == 0


def test_a_disabled_patch_is_out_everywhere(live: Live):
    assert {patches[DISABLED] for patches in live.states().values()} == {("disabled", "")}
    rows = [line.split() for line in live.text("--all").stdout.splitlines()]
    assert len([row for row in rows if row[:2] == [DISABLED, "disabled"]]) == len(live.states())


def test_undo_is_seen_in_the_process_where_it_happened(live: Live):
    before = live.state(SERVERS)
    assert live.do("undo", SERVERS) == "undone"
    assert live.state(SERVERS) == before | {"API server": "undone"}
    live.do("redo", SERVERS)
    assert live.state(SERVERS) == before


def test_undo_in_the_workers_is_seen_in_both(live: Live):
    before = live.state(WORKERS)
    live.tell_workers("undo", WORKERS)
    undone = {role: "undone" for role in before if role.startswith("worker")}
    assert len(undone) == 2 and live.state(WORKERS) == before | undone
    live.tell_workers("redo", WORKERS)
    assert live.state(WORKERS) == before


def test_a_wrapper_of_somebody_else_is_seen_and_is_an_exit_code(live: Live):
    before = live.state(SERVERS)
    live.do("wrap", SERVERS)
    shown = live.text()
    assert live.state(SERVERS) == before | {"API server": "displaced"}
    assert shown.returncode == 1 and "displaced" in shown.stdout
    live.do("unwrap", SERVERS)
    assert live.state(SERVERS) == before and live.text().returncode == 0
