"""What every command has: help, one line for a call that is wrong, exit codes; and what is loaded for it."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys

import pytest

import engine_overlay
from engine_overlay.cli.main import COMMANDS
from tests.core.support import engine, louder_patch, third_party
from tests.core.test_cli import cli

TYPED = sorted(set(COMMANDS) - {"run"})


@pytest.fixture
def folder(tmp_path):
    return third_party(engine(tmp_path), "loud_patches", louder_patch(tmp_path))


def modules_after(*argv: str) -> set[str]:
    """Modules that are loaded when the command has run."""
    code = (
        "import contextlib, io, json, sys\n"
        "from engine_overlay.cli.main import main\n"
        "with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit): main(sys.argv[1:])\n"
        "print(*sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code, *argv], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


# -- help


@pytest.mark.parametrize("flag", ["--help", "-h"])
def test_help_names_every_command_and_loads_none(tmp_path, flag):
    done = cli(tmp_path, flag)
    assert done.returncode == 0 and done.stderr == ""
    words = " ".join(done.stdout.split())
    assert all(f"{name} {summary}" in words for name, summary in COMMANDS.items())
    loaded = modules_after(flag)
    assert "typer" in loaded
    assert not {f"engine_overlay.cli.{name}" for name in COMMANDS} & loaded


@pytest.mark.parametrize("name", TYPED)
def test_each_help_says_what_it_does_with_an_example_and_the_exit_codes(tmp_path, name):
    done = cli(tmp_path, name, "--help")
    assert done.returncode == 0 and done.stderr == ""
    assert done.stdout.isascii(), "no boxes where it is not a terminal"
    words = " ".join(done.stdout.split())
    module = importlib.import_module(f"engine_overlay.cli.{name}")
    assert " ".join(module.command.__doc__.split("\n\n")[0].split()) in words
    assert words.count("Example: engine-overlay") == len(module.EXAMPLES)
    assert "Exit codes: 0: " in words and 2 in module.EXITS
    assert ("--json" in words) is ("JSON:" in words), "the shape of the JSON is part of the help"


@pytest.mark.parametrize("name", TYPED)
def test_examples_name_options_that_exist(tmp_path, name):
    shown = cli(tmp_path, name, "--help").stdout
    for call in importlib.import_module(f"engine_overlay.cli.{name}").EXAMPLES:
        # What follows a lone -- is a command of somebody else.
        program, command, *words = call.partition(" -- ")[0].split()
        assert (program, command) == ("engine-overlay", name)
        assert all(f"  {word}" in shown for word in words if word.startswith("--"))


def test_help_as_a_word(tmp_path):
    assert cli(tmp_path, "help").stdout == cli(tmp_path, "--help").stdout
    assert cli(tmp_path, "help", "plan").stdout == cli(tmp_path, "plan", "--help").stdout


def test_without_arguments_the_help_is_shown_and_the_call_is_not_a_success(tmp_path):
    done = cli(tmp_path)
    assert done.returncode == 2 and done.stdout == cli(tmp_path, "--help").stdout


def test_version_needs_nothing_else(tmp_path):
    done = cli(tmp_path, "--version")
    assert (done.returncode, done.stdout) == (0, f"engine-overlay {engine_overlay.__version__}\n")
    assert not {"typer", "rich"} & modules_after("--version")


# -- wrong calls


@pytest.mark.parametrize("name", TYPED)
def test_an_unknown_option_is_answered_with_the_nearest(tmp_path, name):
    done = cli(tmp_path, name, "--hepl")
    line = f"engine-overlay: {name}: no such option --hepl, did you mean --help?; "
    assert done.stderr == f'{line}run "engine-overlay {name} --help"\n'
    assert (done.returncode, done.stdout) == (2, "")


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (["lst"], "engine-overlay: lst: no such command, did you mean list?; "),
        (["--versoin"], "no such option --versoin, did you mean --version?; "),
        (["list", "--engine", "vlm"], "list: --engine is 'vlm', none of vllm, aphrodite, did you mean vllm?; "),
        (["list", "--area", "toosl"], "list: there is no area toosl, did you mean tools?; "),
        (["plan", "--sources"], "plan: option '--sources' requires an argument; "),
        (["plan", "more"], "plan: unknown argument more; "),
        (["plan", "more", "and more"], "plan: unknown argument more; "),
        (["plan", "--json=yes"], "plan: option '--json' does not take a value; "),
        (["explain"], "explain: ID is missing; "),
        (["diff"], "diff: ID is missing; "),
        (["new", "soft"], "new: --target is missing; "),
        (["fingerprint"], "fingerprint: TARGET is missing; "),
        (["proxy"], "proxy: --upstream is missing; "),
        (["parity"], "parity: --model is missing; "),
        (["parity", "--model", ".", "--clip", "0.1"], "parity: option '--clip' requires 2 arguments; "),
        (["parity", "--model", ".", "--samples", "two"], "parity: --samples is 'two', not a whole number; "),
        (["parity", "--model", ".", "--top-p=much"], "parity: --top-p is 'much', not a number; "),
        (["parity", "--model", ".", "--clip", "low", "0.1"], "parity: --clip is 'low 0.1', not a number; "),
        (
            ["parity", "--model", ".", "--trainer-reads", "proccessed"],
            "--trainer-reads is 'proccessed', none of processed, temperature, raw, did you mean processed?; ",
        ),
        (["drift", "--sources", ".", "--release", "vllm-0.33.0"], "drift: --sources and --release are both given; "),
        (["verify", "--sources", ".", "--matrix"], "verify: --sources and --matrix are both given; "),
        (["doctor", "--engine", "aphrodite"], "doctor: no engine is installed here; "),
        (["explain", "louder\x1b[2J"], "there is no patch louder[2j; "),
        (["\x1b[2J"], "engine-overlay: [2J: no such command; "),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_wrong_call_gets_one_line_and_exit_code_2(tmp_path, argv, says):
    done = cli(tmp_path, *argv)
    assert says in done.stderr and done.stderr.count("\n") == 1
    assert done.stderr.startswith("engine-overlay: ")
    assert (done.returncode, done.stdout) == (2, "")
    assert "\x1b" not in done.stderr


def test_without_typer_one_line_says_so_and_the_launcher_works(tmp_path):
    code = (
        "import sys\n"
        "sys.modules['typer'] = sys.modules['rich'] = sys.modules['click'] = None\n"
        "from engine_overlay.cli.main import main\n"
        "sys.exit(main(sys.argv[1:]))"
    )
    run = [sys.executable, "-c", code]
    done = subprocess.run([*run, "plan"], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr == (
        'engine-overlay: typer: it is not installed, and the commands need it; run "pip install typer rich"\n'
    )
    done = subprocess.run([*run, "run", "--", "echo", "hello"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "hello\n")


# -- what is loaded, and what is written


def test_only_what_is_asked_for_is_loaded():
    loaded = modules_after("list")
    assert "engine_overlay.cli.list" in loaded and "engine_overlay.cli.plan" not in loaded
    typer = subprocess.run([sys.executable, "-c", "import sys, typer; print(*sys.modules)"], capture_output=True)
    assert not {"numpy", "torch", "rich.table", "vllm"} & (loaded - set(typer.stdout.decode().split()))


def test_the_launcher_loads_no_library():
    assert not {"typer", "rich", "click", "packaging"} & modules_after("run", "--help")


def test_whoever_stops_reading_gets_no_traceback(folder):
    for argv in (["list"], ["plan"], ["list", "--json"], ["--help"]):
        env = {**os.environ, "PYTHONPATH": str(folder)}
        read, write = os.pipe()
        os.close(read)
        command = [sys.executable, "-m", "engine_overlay.cli", *argv]
        done = subprocess.run(command, env=env, stdout=write, stderr=subprocess.PIPE, text=True, check=False)
        os.close(write)
        assert (done.returncode, done.stderr) == (1, ""), argv


def test_without_any_output_it_still_runs(folder):
    env = {**os.environ, "PYTHONPATH": str(folder)}
    command = [sys.executable, "-m", "engine_overlay.cli", "plan"]
    done = subprocess.run(["sh", "-c", 'exec "$@" >&-', "sh", *command], env=env, capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")


def test_completion_knows_commands_and_options_and_nothing_is_written_unasked(folder, tmp_path_factory):
    home = tmp_path_factory.mktemp("home")
    for words, expected in (("engine-overlay pl", "plan"), ("engine-overlay plan --so", "--sources")):
        done = cli(
            folder, HOME=str(home), _ENGINE_OVERLAY_COMPLETE="complete_bash", COMP_WORDS=words,
            COMP_CWORD=str(len(words.split()) - 1),
        )  # fmt: skip
        assert done.stdout.split() == [expected], done.stderr
    cli(folder, "list", HOME=str(home))
    assert list(home.iterdir()) == []
