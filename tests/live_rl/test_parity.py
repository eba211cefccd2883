"""The parity command on the released engine: what it finds, and how small it makes the gap."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

EAGER = ("--engine-arg", "enforce_eager=true")


def gaps(report: dict[str, Any]) -> dict[str, float]:
    return {run["name"]: run["numbers"]["mean_abs_log_ratio"] for run in report["runs"]}


def findings(report: dict[str, Any]) -> dict[str, tuple[str, str]]:
    return {entry["name"]: (entry["layer"], entry["status"]) for entry in report["findings"]}


@pytest.fixture(scope="session")
def exact(parity: Callable, plain: Path, moved: Path) -> tuple[int, dict[str, Any], str]:
    """Float32, with the moved weights as the policy after an update, and a reward."""
    more = ("--new-model", str(moved), "--reward", "tests.live_rl.test_parity:even")
    return parity(plain, *EAGER, "--engine-arg", "dtype=float32", *more)


def even(prompt: list[int], answer: list[int], text: str) -> float:
    return sum(token % 2 == 0 for token in answer) / len(answer)


def test_in_float32_the_meaning_is_the_whole_gap(exact: tuple) -> None:
    code, report, said = exact
    found = gaps(report)
    assert list(found) == ["as it is", "mode", "caching"]
    assert found["as it is"] > 0.3
    assert found["mode"] <= 1e-5 and found["caching"] <= 1e-5
    assert code == 1
    assert findings(report)["meaning"] == findings(report)["mode"] == ("semantic", "cause")
    assert findings(report)["caching"] == findings(report)["remainder"] == ("inference path", "no effect")
    assert "--logprobs-mode processed_logprobs" in said


def test_what_cannot_be_toggled_here_is_said(exact: tuple) -> None:
    found = findings(exact[1])
    assert [found[n][1] for n in ("scheduling", "head", "batch invariance")] == ["already so"] * 3


def test_layers_come_in_their_order(exact: tuple) -> None:
    layers = [entry["layer"] for entry in exact[1]["findings"]]
    order = ["semantic", "inference path", "objective/staleness"]
    assert layers == sorted(layers, key=order.index) and set(layers) == set(order)


def test_the_stock_cache_was_used_and_the_last_run_did_without(exact: tuple) -> None:
    cached = [run["settings"]["cached_prompt_tokens"] for run in exact[1]["runs"]]
    assert cached[0] > 0 and cached[-1] == 0


def test_the_policy_update_is_taken_apart(exact: tuple) -> None:
    split = exact[1]["split"]
    assert split["mismatch"]["mean_abs_log_ratio"] <= 1e-5
    assert split["update"]["mean_abs_log_ratio"] > 0.05
    assert split["total"]["mean_abs_log_ratio"] == pytest.approx(split["update"]["mean_abs_log_ratio"], rel=1e-3)
    assert findings(exact[1])["policy update"] == ("objective/staleness", "cause")


def test_every_token_is_in_the_report(exact: tuple) -> None:
    report = exact[1]
    assert len(report["sequences"]) == report["runs"][-1]["numbers"]["sequences"] == 16
    rewards = []
    for row in report["sequences"]:
        assert len(row["token_ids"]) == len(row["engine"]) == len(row["trainer"]) == row["tokens"] <= 96
        assert row["reward"] == even([], row["token_ids"], "")
        rewards.append(row["reward"])
        for engine, trainer, ratio in zip(row["engine"], row["trainer"], row["log_ratio"], strict=True):
            assert ratio == pytest.approx(trainer - engine, abs=1e-6)
    assert report["runs"][-1]["numbers"]["reward"] == pytest.approx(sum(rewards) / len(rewards))


@pytest.mark.every
def test_in_bfloat16_the_gap_falls_to_a_tenth(parity: Callable, plain: Path) -> None:
    code, report, _ = parity(plain, *EAGER, "--engine-arg", "dtype=bfloat16", "--toggle", "mode,head")
    found = gaps(report)
    assert list(found) == ["as it is", "mode", "head"] and code == 1
    assert 1e-3 < found["head"] <= 0.1 * found["as it is"]
    clips = [run["numbers"]["clip_rate_ppo"] for run in report["runs"]]
    assert clips[1] < 0.1 and clips[2] < 0.1 < 0.5 < clips[0]
    assert findings(report)["remainder"] == ("inference path", "cause")


@pytest.mark.every
def test_the_head_alone_is_found(parity: Callable, peaked: Path) -> None:
    """A body in float32 and a head in bfloat16, so that nothing else is left."""
    head = ("--engine-arg", "dtype=float32", "--engine-arg", 'hf_overrides={"head_dtype": "bfloat16"}')
    _, report, said = parity(peaked, *EAGER, *head, "--toggle", "mode,head")
    found = gaps(report)
    assert found["mode"] > 0.01 and found["head"] <= 1e-5
    assert findings(report)["head"] == ("inference path", "cause")
    assert '"head_dtype": "float32"' in said


WRONG = [
    (("--model", "/no/such"), "is no folder with a config.json"),
    (("--engine-arg", "no_such_argument=1", "--limit", "1"), "no_such_argument"),
    (("--url", "http://127.0.0.1:9"), "not reachable"),
    (("--top-p", "0"), "top-p is 0.0"),
    (("--samples", "0"), "--samples is 0"),
    (("--toggle", "heads"), "--toggle heads is unknown"),
    (("--engine-arg", "eager"), "is no KEY=VALUE"),
    (("--prompts", "/no/such.jsonl"), "cannot be read"),
    (("--out", "/no/such/report.html"), "is no folder"),
    (("--reward", "json:no_such"), "no_such"),
    (("--trainer-dtype", "int4"), "--trainer-dtype is int4"),
]
"""The first three come to their ends in different places; the others are like the first."""


@pytest.mark.parametrize(
    ("more", "said"),
    [pytest.param(*case, id=case[0][0], marks=[pytest.mark.every] if n > 2 else []) for n, case in enumerate(WRONG)],
)
def test_wrong_input_is_one_line(run: Callable, plain: Path, tmp_path: Path, more: tuple, said: str) -> None:
    command = ("--model", str(plain), "--out", str(tmp_path / "r.html"), *more)
    done = run("engine_overlay.cli", "parity", *command, ENGINE_OVERLAY="off")
    assert done.returncode == 2
    line = done.stderr.splitlines()[-1]
    assert line.startswith("engine-overlay: parity: ") and said in line and "; " in line
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "r.html").exists()


def test_without_the_extra_one_line_says_how_to_get_it(tmp_path: Path, plain: Path) -> None:
    import subprocess

    # As in an environment without it: the import system finds no matplotlib.
    program = (
        "import sys, importlib.util as u; find = u.find_spec;"
        "u.find_spec = lambda name, *a: None if name == 'matplotlib' else find(name, *a);"
        "from engine_overlay.cli.main import main; sys.exit(main(sys.argv[1:]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, "parity", "--model", str(plain)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "matplotlib is not installed; pip install 'engine-overlay[rl]'" in done.stderr
