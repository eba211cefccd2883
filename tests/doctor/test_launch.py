"""Command lines: which server they start, with which model and flags; and those of running processes."""

import os
import subprocess
import sys
import time

import pytest

from engine_overlay.doctor import launch

MODEL = ("serve", "org/model", "--port", "1")


@pytest.mark.parametrize(
    ("text", "engine", "model"),
    [
        ("vllm serve org/model --port 1", "vllm", "org/model"),
        ("/opt/venv/bin/python3 /opt/venv/bin/vllm serve org/model --port 1", "vllm", "org/model"),
        ("vllm serve --model org/model", "vllm", "org/model"),
        ("vllm serve --model=org/model", "vllm", "org/model"),
        ("aphrodite run org/model", "aphrodite", "org/model"),
        ("python -m vllm.entrypoints.openai.api_server --model org/model", "vllm", "org/model"),
        ("python -m vllm.entrypoints.launchers.api_server.entry --model org/model", "vllm", "org/model"),
        ("python3 /x/aphrodite/entrypoints/openai/api_server.py --model org/model", "aphrodite", "org/model"),
        ("docker run --gpus all -p 8000:8000 vllm/vllm-openai:v0.30.0 --model org/model", "vllm", "org/model"),
        ("docker run reg.example/vllm-openai-cpu:latest org/model --port 1", "vllm", "org/model"),
        ("engine-overlay run vllm serve org/model", "vllm", "org/model"),
        ("VLLM_PLUGINS= env ENGINE_OVERLAY=strict vllm serve org/model", "vllm", "org/model"),
        ("vllm serve \\\n  org/model \\\n  --port 1", "vllm", "org/model"),
        ("--model org/model --tool-call-parser hermes", None, "org/model"),
        ("--tool-call-parser hermes", None, None),
        ("vllm serve --config c.yaml", "vllm", None),
    ],
)
def test_a_server_is_found_in_its_command_line(text, engine, model):
    found = launch.given(launch.split(text))
    assert (found.engine, found.model) == (engine, model)


@pytest.mark.parametrize("text", ["", "python train.py", "vllm bench serve", "vllm", "A=1", "grep vllm notes.txt"])
def test_what_starts_no_server_is_one_line(text):
    with pytest.raises(launch.NotUnderstood) as raised:
        launch.given(launch.split(text))
    assert "\n" not in str(raised.value)


def test_an_open_quote_is_one_line():
    with pytest.raises(launch.NotUnderstood, match="cannot be read"):
        launch.split('vllm serve "x')


def test_variables_in_front_are_those_of_the_server():
    found = launch.given(launch.split("PATH=/x VLLM_USE_RUST_FRONTEND=1 ENGINE_OVERLAY=off vllm serve m"))
    assert found.environ == {"VLLM_USE_RUST_FRONTEND": "1", "ENGINE_OVERLAY": "off"}


def test_flags_are_read_as_engines_read_them():
    words = ["serve", "m", "--tool_call_parser", "a", "--tool-call-parser=b", "--flag", "--other", "-1"]
    found = launch.Launch("vllm", tuple(words), "here")
    assert found.flag("tool-call-parser") == "b"
    assert found.flag("flag") == "" and found.flag("other") == "-1" and found.flag("none") is None


@pytest.fixture
def process():
    """A process that has the command line of a server, and one of its variables."""
    command = [sys.executable, "-c", "import time; time.sleep(60)", "vllm", *MODEL]
    env = {**os.environ, "VLLM_PLUGINS": "mine", "SECRET_TOKEN": "x"}
    with subprocess.Popen(command, env=env) as found:
        # Until it runs the new program it has the command line of this one.
        while not launch.running(found.pid):
            time.sleep(0.01)
        yield found
        found.kill()


def test_a_running_server_without_the_overlay_is_read_from_its_process(process):
    (found,) = launch.running(process.pid)
    assert (found.engine, found.words, found.pid) == ("vllm", MODEL, process.pid)
    assert found.environ["VLLM_PLUGINS"] == "mine" and "SECRET_TOKEN" not in found.environ
    assert found.python == sys.executable
    assert process.pid in [one.pid for one in launch.running()]


def test_a_process_that_is_no_server_is_none():
    assert launch.running(os.getpid()) == []


def test_who_starts_the_doctor_with_a_command_line_is_no_server():
    code = (
        "from engine_overlay.doctor import launch; import os; print(os.getppid() in [f.pid for f in launch.running()])"
    )
    outer = (
        "import subprocess, sys; "
        "print(subprocess.run([sys.executable, '-c', sys.argv[1]], capture_output=True, text=True).stdout)"
    )
    done = subprocess.run([sys.executable, "-c", outer, code, "vllm", "serve", "m"], capture_output=True, text=True)
    assert done.stdout.split() == ["False"], done
