"""``engine-overlay verify`` as a user calls it: on the installed engine, on folders, and called wrongly."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from engine_overlay.verify import cases as public
from engine_overlay.verify import releases
from tests.matrix import environment

pytestmark = pytest.mark.engine


def call(*arguments: str, sources: Path | None = None, **more: str) -> subprocess.CompletedProcess[str]:
    env = environment.variables(sources, overlay=True) | more
    return environment.call(["-m", "engine_overlay.cli", "verify", *arguments], env)


@pytest.fixture(scope="module")
def newest() -> Path:
    return releases.fetch(releases.named("vllm-0.33.0"))


def test_the_installed_engine(newest):
    done = call("--json", "--case", "00", sources=newest)
    assert done.returncode == 0, done.stdout + done.stderr
    (report,) = json.loads(done.stdout)
    assert report["engine"] == "vllm 0.33.0" and report["wrong"] == {} and report["worse"] == []
    rows = report["rows"]["qwen3+qwen3_coder"]
    # Every one of these is about spelled markers: the stock engine has them wrong when streaming.
    assert rows["cases"] == rows["on stream"] == rows["on full"] == len(public.load(only=("00",)))
    assert rows["off stream"] < rows["cases"]


def test_a_patch_that_the_user_switched_off_is_missed(newest):
    done = call("--case", "003", "--quick", sources=newest, ENGINE_OVERLAY_DISABLE="spelled_markers")
    assert done.returncode == 1
    assert "wrong: 003-frag-tool-call" in done.stdout


def test_folders_old_and_new(newest):
    old = releases.fetch(releases.named("vllm-0.21.0"))
    done = call("--sources", str(newest), str(old), "--quick", "--json", "--case", "001")
    assert done.returncode == 0, done.stdout + done.stderr
    assert [report["engine"] for report in json.loads(done.stdout)] == ["vllm 0.33.0", "vllm 0.21.0"]


def test_releases_of_the_matrix():
    done = call("--matrix", "--only", "aphrodite_engine-0.24.1", "--quick", "--case", "001")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith("aphrodite_engine-0.24.1: 1 of 1 cases right with the overlay")


WRONG = {
    "no such case": (["--case", "nine"], "no case begins with nine"),
    "no such release": (["--matrix", "--only", "vllm-0.33"], "did you mean 'vllm-0.33.0'"),
    "a folder without an engine": (["--sources", "/"], "holds no engine"),
    "nothing installed": ([], "no engine is installed here"),
    "an option that goes with another": (["--only", "vllm-0.33.0"], "--only is for --matrix"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_call_gets_one_line(case):
    arguments, says = WRONG[case]
    done = call(*arguments)
    assert done.returncode == 2
    assert done.stderr.startswith("engine-overlay: verify: ") and done.stderr.count("\n") == 1
    assert says in done.stderr


def test_an_engine_that_cannot_be_run_gets_one_line(tmp_path):
    package = tmp_path / "vllm"
    package.mkdir()
    (package / "__init__.py").write_text("raise ImportError('half installed')\n")
    (package / "_version.py").write_text("__version__ = version = '0.33.0'\n")
    done = call("--sources", str(tmp_path), "--case", "001")
    assert done.returncode == 2, done.stdout + done.stderr
    assert "the engine cannot be run here" in done.stderr and "half installed" in done.stderr


def test_what_the_package_brings_is_what_is_tested_here():
    names = {path.name for path in (environment.ROOT / "tests" / "cases").glob("*.json")}
    assert {f"{case['id']}.json" for case in public.load()} <= names and len(public.load()) == len(names)
