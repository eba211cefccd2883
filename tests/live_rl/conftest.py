"""Models, and one run each of the scenarios that start an engine."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.live import environment as live
from tests.live_rl import models

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def plain() -> Path:
    return models.make(live.cache() / "live-rl-plain", "plain")


@pytest.fixture(scope="session")
def peaked() -> Path:
    return models.make(live.cache() / "live-rl-peaked", "peaked")


@pytest.fixture(scope="session")
def moved(plain: Path) -> Path:
    """The weights of ``plain`` after an update: 2 % of noise on each of them."""
    return models.moved(plain, live.cache() / "live-rl-moved")


@pytest.fixture(scope="session")
def truncated(moved: Path) -> Path:
    """The moved weights, the last of their files cut off."""
    return models.truncated(moved, live.cache() / "live-rl-truncated")


@pytest.fixture(scope="session")
def run() -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run a module in this environment."""

    def call(*command: str, **variables: str) -> subprocess.CompletedProcess[str]:
        env = live.variables() | {"PYTHONPATH": str(ROOT), "OVERLAY_CACHE": str(live.cache())} | variables
        whole = [sys.executable, "-m", *command]
        return subprocess.run(whole, cwd=ROOT, env=env, capture_output=True, text=True, timeout=600, check=False)

    return call


@pytest.fixture(scope="session")
def inflight(
    plain: Path, moved: Path, truncated: Path, run: Callable, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Any]:
    answer = tmp_path_factory.mktemp("inflight") / "answer.json"
    done = run("tests.live_rl.scenario", *map(str, (plain, moved, truncated, answer)), ENGINE_OVERLAY="off")
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(answer.read_text()) | {"log": done.stdout + done.stderr}


@pytest.fixture(scope="session")
def parity(run: Callable, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., tuple[int, dict[str, Any], str]]:
    """Run ``engine-overlay parity`` on a small workload: exit code, the report's JSON, and what was said."""

    def call(model: Path, *more: str) -> tuple[int, dict[str, Any], str]:
        out = tmp_path_factory.mktemp("parity") / "report.html"
        command = ["engine_overlay.cli", "parity", "--model", str(model), "--out", str(out), "--limit", "8", *more]
        # One process instead of three: most of the time goes into starting them.
        done = run(*command, VLLM_ENABLE_V1_MULTIPROCESSING="0", ENGINE_OVERLAY="off")
        assert out.is_file(), done.stdout + done.stderr[-3000:]
        return done.returncode, json.loads(out.with_suffix(".json").read_text()), done.stdout

    return call


@pytest.fixture(scope="session", autouse=True)
def _quiet() -> None:
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
