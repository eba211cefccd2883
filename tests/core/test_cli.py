"""The command line, run as a user runs it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.core.support import body, engine, louder_patch, third_party, variables, warm

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def folder(tmp_path):
    return third_party(engine(tmp_path), "loud_patches", louder_patch(tmp_path))


def cli(folder, *args, **env):
    return warm().run(["-m", "engine_overlay.cli", *args], env=variables(folder, **env), timeout=120)


def test_plan_lists_each_verdict_without_importing_the_engine(folder):
    (folder / "vllm" / "__init__.py").write_text("raise SystemExit('imported')\n")
    done = cli(folder, "plan", "--json")
    got = json.loads(done.stdout)["engines"][0]
    assert (got["engine"], got["version"]) == ("vllm", "0.1.5")
    assert got["patches"]["louder"]["verdict"] == "apply" and got["summary"]["apply"] >= 1


def test_plan_says_how_many_go_in_and_what_to_do_about_the_others(folder):
    done = cli(folder, "plan")
    assert done.returncode == 0 and done.stdout.startswith("vllm 0.1.5 in ")
    assert "1 would go in, " in done.stdout and ", 0 refused" in done.stdout
    (folder / "vllm" / "greeting.py").write_text("class Greeter:\n    def greet(self):\n        return 'other'\n")
    done = cli(folder, "plan")
    assert done.returncode == 1 and ", 1 refused" in done.stdout
    # What is refused comes first: behind the engine, the head of the table and the rule below it.
    assert done.stdout.splitlines()[3].split()[:2] == ["louder", "drifted"]
    (step,) = [line for line in done.stdout.splitlines() if line.startswith("next, for louder: ")]
    assert "engine-overlay drift" in step and "ENGINE_OVERLAY_DISABLE=louder" in step


def test_plan_says_what_is_wrong_with_the_settings(folder):
    done = cli(folder, "plan", ENGINE_OVERLAY="off", ENGINE_OVERLAY_DISABLE="luoder")
    assert "problem: ENGINE_OVERLAY=off: none of this is applied" in done.stdout
    assert "problem: ENGINE_OVERLAY_DISABLE: there is no patch luoder, did you mean louder?" in done.stdout


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
    assert "to switch it off: ENGINE_OVERLAY_DISABLE=louder" in done.stdout
    done = cli(folder, "explain", "luoder")
    assert done.returncode == 2 and "there is no patch luoder, did you mean louder?" in done.stderr


def test_explain_tells_all_that_a_record_says(folder):
    done = cli(folder, "explain", "fp32-head", "--json")
    told = json.loads(done.stdout)
    assert (told["id"], told["area"], told["default"]) == ("fp32_head", "weights", False)
    assert all(told[key] for key in ("symptom", "cause", "change", "risk", "targets", "remove_when"))
    assert told["switch_on"] == ["ENGINE_OVERLAY_ENABLE=fp32_head", "ENGINE_OVERLAY_PROFILE=rl"]
    assert [row["engine"] for row in told["here"]] == ["vllm 0.1.5"]
    for path in (told["file"], told["test"], told["page"]):
        assert (ROOT / path).is_file()
    text = cli(folder, "explain", "fp32-head").stdout
    assert f"Symptom: {told['symptom']}\n" in text and told["file"] in text


def test_explain_says_the_next_step_for_a_refused_patch(folder):
    done = cli(folder, "explain", "louder", ENGINE_OVERLAY_UNTESTED="refuse")
    assert "next: " not in done.stdout
    (folder / "vllm" / "greeting.py").write_text("class Greeter:\n    def greet(self):\n        return 'other'\n")
    done = cli(folder, "explain", "louder")
    assert "here, vllm 0.1.5: drifted: body of Greeter.greet is unknown" in done.stdout and "next: see" in done.stdout


def test_fingerprint_prints_what_a_record_needs(folder):
    done = cli(folder, "fingerprint", "greeting:Greeter.greet", "greeting:Greeter.gone")
    assert body(folder, "greeting:Greeter.greet") in done.stdout and "absent" in done.stdout
    rows = json.loads(cli(folder, "fingerprint", "greeting:Greeter.greet", "gone:greet", "--json").stdout)
    assert [row["body"] for row in rows] == [body(folder, "greeting:Greeter.greet"), None]
    assert rows[1]["why"] == "vllm.gone has no source file"
    assert cli(folder, "fingerprint", "greeting.Greeter").returncode == 2


def test_fingerprint_takes_several_folders_behind_one_option(folder, tmp_path_factory):
    other = engine(tmp_path_factory.mktemp("other"), "0.1.6")
    for arguments in (
        ["greeting:greet", "--sources", str(folder), str(other)],
        ["--sources", str(folder), "--sources", str(other), "--", "greeting:greet"],
        [f"--sources={folder}", f"--sources={other}", "greeting:greet"],
    ):
        done = cli(folder, "fingerprint", *arguments)
        assert [line.split()[1] for line in done.stdout.splitlines()] == ["0.1.5", "0.1.6"], done.stderr


def test_status_shows_running_processes(folder):
    code = (
        "from engine_overlay import importer; importer.install('api'); import vllm.greeting, sys\n"
        "print('ready', flush=True); sys.stdin.read()"
    )
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-c", code], env=variables(folder), **pipes) as process:
        assert process.stdout.readline() == "ready\n"
        done = cli(folder, "status", "--json")
        process.stdin.close()
    (report,) = json.loads(done.stdout)
    assert report["pid"] == process.pid and done.returncode == 0
    assert {p["id"]: (p["state"], p["scope"]) for p in report["patches"]}["louder"] == ("applied", ["server"])
    assert cli(folder, "status").returncode == 1


def test_an_unknown_command_is_answered_with_the_nearest(folder):
    done = cli(folder, "statsu")
    assert done.returncode == 2
    assert done.stderr == 'engine-overlay: statsu: no such command, did you mean status?; run "engine-overlay --help"\n'


def test_without_an_engine_the_next_step_is_said(tmp_path):
    done = cli(tmp_path, "plan")
    assert done.returncode == 2 and "no engine is installed here; install vllm" in done.stderr
