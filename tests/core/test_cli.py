"""The command line, run as a user runs it."""

import json
import os
import subprocess
import sys

import pytest

from tests.core.support import body, engine, louder_patch, third_party


@pytest.fixture
def folder(tmp_path):
    return third_party(engine(tmp_path), "loud_patches", louder_patch(tmp_path))


def cli(folder, *args, **env):
    clean = {k: v for k, v in os.environ.items() if not k.startswith("ENGINE_OVERLAY")}
    return subprocess.run(
        [sys.executable, "-m", "engine_overlay.cli", *args],
        env={**clean, "PYTHONPATH": str(folder), "ENGINE_OVERLAY_STATE_DIR": str(folder / "state"), **env},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_plan_lists_each_verdict_without_importing_the_engine(folder):
    (folder / "vllm" / "__init__.py").write_text("raise SystemExit('imported')\n")
    done = cli(folder, "plan", "--json")
    got = json.loads(done.stdout)["engines"][0]
    assert (got["engine"], got["version"]) == ("vllm", "0.1.5")
    assert got["patches"]["louder"]["verdict"] == "apply"


def test_doctor_proves_a_patch_and_finds_one_that_does_nothing(folder):
    given = ("doctor", "--flags", "vllm serve some/model")
    done = cli(folder, *given, "--json")
    row = next(r for r in json.loads(done.stdout)["probes"] if r["id"] == "louder")
    assert [row["without"][0], row["with"][0], row["after_undo"][0]] == ["PRESENT", "ABSENT", "PRESENT"]
    assert row["judgement"] == "proven"
    idle = louder_patch(folder).replace('+ "!"', '+ ""')
    done = cli(third_party(folder, "loud_patches", idle), *given)
    assert done.returncode == 1 and "NOT proven" in done.stdout


def test_explain_tells_what_a_patch_does_and_guesses_a_typo(folder):
    done = cli(folder, "explain", "louder")
    assert done.returncode == 0 and "A louder greeting" in done.stdout and "here, vllm 0.1.5: apply" in done.stdout
    done = cli(folder, "explain", "luoder")
    assert done.returncode == 2 and "there is no patch luoder, did you mean louder?" in done.stderr


def test_fingerprint_prints_what_a_record_needs(folder):
    done = cli(folder, "fingerprint", "greeting:Greeter.greet", "greeting:Greeter.gone")
    assert body(folder, "greeting:Greeter.greet") in done.stdout and "absent" in done.stdout
    assert cli(folder, "fingerprint", "greeting.Greeter").returncode == 2


def test_status_shows_running_processes(folder):
    code = (
        "from engine_overlay import importer; importer.install('api'); import vllm.greeting, sys\n"
        "print('ready', flush=True); sys.stdin.read()"
    )
    clean = {k: v for k, v in os.environ.items() if not k.startswith("ENGINE_OVERLAY")}
    env = {**clean, "PYTHONPATH": str(folder), "ENGINE_OVERLAY_STATE_DIR": str(folder / "state")}
    with subprocess.Popen(
        [sys.executable, "-c", code], env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout.readline() == "ready\n"
        done = cli(folder, "status", "--json")
        process.stdin.close()
    (report,) = json.loads(done.stdout)
    assert report["pid"] == process.pid and done.returncode == 0
    assert {p["id"]: p["state"] for p in report["patches"]}["louder"] == "applied"
    assert cli(folder, "status").returncode == 1


def test_an_unknown_command_is_answered_with_the_nearest(folder):
    done = cli(folder, "statsu")
    assert done.returncode == 2
    assert done.stderr == 'engine-overlay: statsu: no such command, did you mean status?; run "engine-overlay --help"\n'


def test_without_an_engine_the_next_step_is_said(tmp_path):
    done = cli(tmp_path, "plan")
    assert done.returncode == 2 and "no engine is installed here; install vllm" in done.stderr
