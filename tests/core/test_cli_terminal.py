"""The same commands on a terminal and in a pipe: tables, colours and wrapping there, plain whole lines here."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import struct
import termios
import time
from pathlib import Path

import pytest

from engine_overlay.settings import PROFILES
from tests.core.support import engine, louder_patch, third_party, variables, warm
from tests.core.test_cli import cli
from tests.core.test_cli_status import row, written

COLOUR = re.compile(r"\x1b\[[0-9;]*m")
BOXES = re.compile(r"[\u2500-\u257f]")
TITLE = "A louder [bold red]greeting[/] with \\x1b[2J in it"


@pytest.fixture
def folder(tmp_path):
    return third_party(engine(tmp_path), "loud_patches", louder_patch(tmp_path))


def terminal(folder: Path, *argv: str, width: int = 80, timeout: float = 60, **env: str) -> tuple[int, str]:
    """The exit code, and what a terminal of ``width`` columns gets to show."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, width, 0, 0))
    kept = variables(folder, TERM="xterm-256color", LC_ALL="C.UTF-8")
    kept = {k: v for k, v in kept.items() if k not in ("NO_COLOR", "COLUMNS", "LINES", "FORCE_COLOR")}
    command = ["-m", "engine_overlay.cli", *argv]
    process = warm().popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=kept | env)
    os.close(theirs)
    parts, end = [], time.monotonic() + timeout
    try:
        while time.monotonic() < end:
            if select.select([ours], [], [], 1)[0]:
                parts.append(os.read(ours, 65536))
    except OSError:
        # The other side has closed it.
        pass
    finally:
        process.kill() if time.monotonic() >= end else None
        os.close(ours)
    return process.wait(timeout), b"".join(parts).decode().replace("\r\n", "\n")


def plain(shown: str) -> str:
    return COLOUR.sub("", shown)


def words(text: str) -> list[str]:
    return BOXES.sub(" ", plain(text)).split()


@pytest.mark.parametrize("width", [80, 200])
@pytest.mark.parametrize(
    "argv", [["list"], ["plan"], ["explain", "louder"], ["--help"], ["plan", "--help"]], ids=" ".join
)
def test_a_terminal_gets_colours_and_nothing_is_cut(folder, argv, width):
    code, shown = terminal(folder, *argv, width=width)
    assert code == 0 and COLOUR.search(shown)
    assert all(len(line.rstrip()) <= width for line in plain(shown).splitlines())
    assert "\u2026" not in shown
    # What a pipe gets is all there, but for the head of the first column where rows are blocks.
    piped = cli(folder, *argv)
    missing = set(re.findall(r"\w{4,}", piped.stdout)) - set(re.findall(r"\w{4,}", plain(shown)))
    assert {word for word in missing - {"patch"} if not str(folder).count(word)} == set()


def test_a_wide_terminal_gets_a_table_and_a_narrow_one_blocks(folder):
    _, wide = terminal(folder, "list", width=200)
    (line,) = [line for line in plain(wide).splitlines() if line.split()[:1] == ["louder"]]
    assert "0.1.0-0.2.0" in line and line.rstrip().endswith("A louder greeting")
    assert BOXES.search(wide)
    _, narrow = terminal(folder, "list", width=80)
    lines = plain(narrow).splitlines()
    at = lines.index(next(line for line in lines if line.rstrip() == "louder"))
    assert lines[at + 1].split() == "area: third party default: on vllm: 0.1.0-0.2.0".split()
    assert lines[at + 2].split() == "what it does: A louder greeting".split()


@pytest.mark.parametrize("width", [60, 80, 120, 200])
def test_a_setting_to_copy_is_in_one_piece(folder, width):
    _, shown = terminal(folder, "plan", "--sources", str(engine(folder / "later", "0.24.0")), width=width)
    assert {f"ENGINE_OVERLAY_ENABLE={i}" for i in PROFILES["rl"] if "native" not in i} <= set(words(shown))


def test_a_pipe_gets_whole_plain_lines(folder):
    for argv in (["list"], ["plan"], ["explain", "spelled_markers"], ["--help"], ["plan", "--help"]):
        out = cli(folder, *argv, COLUMNS="40", FORCE_COLOR="1", TERM="xterm-256color").stdout
        assert "\x1b" not in out and not BOXES.search(out)
    lines = cli(folder, "list").stdout.splitlines()
    (line,) = [line for line in lines if line.startswith("spelled_markers ")]
    assert line.endswith("Markers are believed where the format's grammar confirms them, however they are spelled")
    lines = cli(folder, "explain", "spelled_markers").stdout.splitlines()
    assert [line.split(":")[0] for line in lines if len(line) > 200][:3] == ["Symptom", "Cause", "Change"]


def test_a_verdict_has_its_colour_and_its_meaning(folder):
    _, shown = terminal(folder, "plan", width=200)
    assert re.search(r"louder .*\x1b\[32mapply", shown)
    assert "apply: goes in when the engine is imported" in plain(shown)
    assert "goes in when the engine is imported" not in cli(folder, "plan").stdout


def test_no_color_and_a_dumb_terminal_are_respected(folder):
    for argv in (["plan"], ["plan", "--help"]):
        _, shown = terminal(folder, *argv, width=200, NO_COLOR="1")
        assert BOXES.search(shown) and not re.search(r"\x1b\[(?:\d+;)*3\d", shown)
        _, shown = terminal(folder, *argv, TERM="dumb")
        assert "\x1b" not in shown and shown == cli(folder, *argv).stdout


def test_json_on_a_terminal_is_the_same_as_in_a_pipe(folder):
    for argv in (["list", "--json"], ["plan", "--json"], ["explain", "louder", "--json"]):
        assert terminal(folder, *argv)[1] == cli(folder, *argv).stdout


def test_an_error_is_one_line_on_a_terminal_too(folder):
    code, shown = terminal(folder, "plan", "--jsn", width=200)
    assert code == 2
    assert shown == (
        'engine-overlay: plan: no such option --jsn, did you mean --json?; run "engine-overlay plan --help"\n'
    )


def test_what_a_patch_of_others_says_is_no_markup_and_steers_nothing(tmp_path):
    engine(tmp_path)
    patch = louder_patch(tmp_path).replace("A louder greeting", TITLE)
    third_party(tmp_path, "loud_patches", patch)
    for width in (80, 200):
        for argv in (["list"], ["explain", "louder"]):
            for shown in (terminal(tmp_path, *argv, width=width)[1], cli(tmp_path, *argv).stdout):
                assert "\x1b[2J" not in shown
                assert "A louder [bold red]greeting[/] with [2J in it" in " ".join(words(shown))


def test_the_status_of_another_users_process_steers_nothing(tmp_path):
    evil = "\x1b]0;owned\x07\x1b[2J\u202e[red]"
    written(tmp_path, row(f"x{evil}", "failed", "", reason=f"why{evil}"), argv=[evil], role=evil, problems=[evil])
    code, shown = terminal(tmp_path, "status", width=120)
    assert code == 1 and "why]0;owned[2J[red]" in "".join(words(shown))
    assert all(char.isprintable() or char == "\n" for char in plain(shown))
