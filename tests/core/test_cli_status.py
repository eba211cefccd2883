"""``engine-overlay status`` on status files as processes leave them, of earlier versions and made up ones too."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from engine_overlay.cli import words
from engine_overlay.verdict import REFUSALS
from tests.core.test_cli import cli


def row(patch_id: str, verdict: str = "apply", state: str = "applied", **more: Any) -> dict[str, Any]:
    fields = {"id": patch_id, "verdict": verdict, "state": state, "reason": "known", "state_reason": ""}
    return fields | {"scope": ["server"]} | more


def written(folder: Path, *patches: dict[str, Any], **more: Any) -> Path:
    """A status file of a process that is there, and does not answer: this one."""
    report = {
        "pid": os.getpid(), "argv": ["vllm", "serve"], "time": 0, "way": "start-up file", "problems": [],
        "role": "API server", "engine": {"name": "vllm", "version": "0.33.0"}, "patches": list(patches),
    }  # fmt: skip
    (folder / "state").mkdir(exist_ok=True)
    (folder / "state" / f"{os.getpid()}.json").write_text(json.dumps(report | more))
    return folder


MANY = (
    row("good"),
    row("better"),
    row("new", "native", ""),
    row("unwanted", "disabled", "", reason="named in ENGINE_OVERLAY_DISABLE"),
    row("rare", "disabled", "", reason="off by default (it is rare)"),
    row("late", state="staged", state_reason="waits for vllm.late to be imported"),
    row("workers", state="out of path", state_reason="it works in the workers", path="elsewhere"),
    row("own", state="applied", path="called"),
)
FRONT = "VLLM_USE_RUST_FRONTEND=1: others answer; unset VLLM_USE_RUST_FRONTEND"


def test_what_is_fine_or_not_needed_is_folded(tmp_path):
    done = cli(written(tmp_path, *MANY), "status")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == f"pid {os.getpid()}, API server: vllm 0.33.0, way in: start-up file: vllm serve"
    called = "applied, but no API server runs here, so only what the program itself calls meets them (1): own"
    assert "applied (2): good, better" in lines and called in lines and "switched off (1): unwanted" in lines
    note = "not needed here: 1 of other processes, 1 not in this release, 1 off by default or not asked for"
    assert f"{note}; --all lists them" in lines
    assert [line.split()[0] for line in lines if "waits for" in line] == ["late"]


def test_all_shows_a_row_for_each(tmp_path):
    done = cli(written(tmp_path, *MANY), "status", "--all")
    table = [line.split()[:2] for line in done.stdout.splitlines()[4:]]
    assert sorted(table) == sorted([p["id"], (p["state"] or p["verdict"]).split()[0]] for p in MANY)


def test_json_has_them_all(tmp_path):
    (report,) = json.loads(cli(written(tmp_path, *MANY), "status", "--json").stdout)
    assert [p["id"] for p in report["patches"]] == [p["id"] for p in MANY] and report["live"] is False


@pytest.mark.parametrize(("path", "code"), [("bypassed", 1), ("not asked", 0)])
def test_what_requests_do_not_meet_is_one_line_with_its_reason(tmp_path, path, code):
    out = [row(name, state="out of path", state_reason=FRONT, loaded="applied", path=path) for name in ("one", "two")]
    done = cli(written(tmp_path, *MANY, *out), "status")
    assert done.returncode == code
    assert f"out of path (2): one, two: {FRONT}" in done.stdout.splitlines()


@pytest.mark.parametrize("word", sorted(REFUSALS | {"displaced"}))
def test_what_is_wrong_comes_first_with_its_next_step(tmp_path, word):
    wrong = row("bad", word, "", reason="why") if word in REFUSALS else row("bad", "apply", word)
    done = cli(written(tmp_path, *MANY, wrong), "status")
    assert done.returncode == 1
    lines = done.stdout.splitlines()
    assert [line.split()[:2] for line in lines if line.startswith(("bad", "late"))] == [
        ["bad", word],
        ["late", "staged"],
    ]
    assert f"next, for bad: {words.next_step(word, 'bad')}" in lines


def test_a_report_of_an_earlier_version_is_shown(tmp_path):
    old = {key: value for key, value in row("good").items() if key != "scope"}
    done = cli(written(tmp_path, old, role=None, problems=None, values=None, engine=None), "status")
    assert done.returncode == 0 and "no engine" in done.stdout and "applied (1): good" in done.stdout


@pytest.mark.parametrize(
    "more",
    [{"patches": [1]}, {"patches": None}, {"patches": [{"id": "x"}]}, {"argv": 3}, {"values": {"vllm": 1}}],
    ids=str,
)
def test_a_file_that_is_no_report_gets_one_line(tmp_path, more):
    done = cli(written(tmp_path, **more), "status")
    assert done.returncode == 1 and "Traceback" not in done.stderr
    assert done.stderr.startswith(f"engine-overlay: status: the report of process {os.getpid()} cannot be read")


@pytest.mark.parametrize("more", [{"time": 1e300}, {"argv": [1, None]}, {"engine": {}}, {"role": 3}], ids=str)
def test_odd_values_end_nothing(tmp_path, more):
    done = cli(written(tmp_path, row("good"), **more), "status")
    assert done.returncode == 0 and "applied (1): good" in done.stdout, done.stderr


def test_nothing_of_another_user_steers_the_terminal(tmp_path):
    evil = "\x1b]0;owned\x07\x1b[2J\u202e\r\x9b31m"
    folder = written(tmp_path, row(f"x{evil}", "failed", "", reason=f"why{evil}"), argv=[evil], role=evil)
    for more in ((), ("--all",)):
        shown = cli(folder, "status", *more).stdout
        assert "why" in shown and all(char.isprintable() or char == "\n" for char in shown)
    assert json.loads(cli(folder, "status", "--json").stdout)[0]["argv"] == [evil]


def test_only_one_process_is_shown_when_it_is_named(tmp_path):
    folder = written(tmp_path, row("good"))
    assert cli(folder, "status", "--pid", str(os.getpid())).returncode == 0
    done = cli(folder, "status", "--pid", "1")
    assert done.returncode == 1 and "no running process 1 has an engine" in done.stdout
    done = cli(folder, "status", "--pid", "one")
    assert done.returncode == 2 and "status: --pid is 'one', not a whole number; " in done.stderr
