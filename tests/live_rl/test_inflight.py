"""Weights changed under 32 running requests, on the released engine; scored by the trainer with either weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from engine_overlay.rl import metrics, trainer
from tests.live_rl.scenario import BLOCK, IN_FLIGHT, SAMPLING, TOKENS

EXACT = 1e-5


@pytest.fixture(scope="session")
def gap(plain: Path, moved: Path):
    """Mean |log ratio| of an answer's tokens from ``start`` to ``end``, against the trainer with the named weights."""
    loaded = {name: trainer.load(str(folder)) for name, folder in (("first", plain), ("other", moved))}

    def measure(weights: str, answers: list[dict[str, Any]], start: int = 0, end: int | None = None) -> float:
        found = trainer.score(loaded[weights], [(a["prompt"], a["token_ids"]) for a in answers], SAMPLING)
        parts = [(row[start:end], a["logprobs"][start:end]) for row, a in zip(found.processed, answers, strict=True)]
        new, mask = metrics.pad([new for new, _ in parts])
        return metrics.compare(new, metrics.pad([old for _, old in parts])[0], mask)["mean_abs_log_ratio"]

    return measure


def boundary(answers: list[dict[str, Any]]) -> tuple[int, int]:
    """The largest span of old tokens and the first token from which all are new, over the answers."""
    cuts = [answer["spans"][0][2] for answer in answers]
    return min(cuts), max(cuts)


@pytest.mark.parametrize("name", ["keep", "clear", "raised"])
def test_every_request_in_flight_survives(inflight: dict[str, Any], name: str) -> None:
    answers = inflight[name]["answers"]
    assert [(len(a["token_ids"]), a["finish_reason"]) for a in answers] == [(TOKENS, "length")] * IN_FLIGHT


@pytest.mark.parametrize(("name", "versions"), [("keep", ["default", "other"]), ("clear", ["again", "first"])])
def test_each_output_carries_the_versions_of_its_tokens(inflight: dict[str, Any], name: str, versions: list) -> None:
    assert inflight[name]["update"]["recorded"] == "outputs"
    for answer in inflight[name]["answers"]:
        assert [span[0] for span in answer["spans"]] == versions
        assert answer["spans"][0][1] == 0 and answer["spans"][-1][2] == TOKENS


def test_tokens_before_and_after_the_update_are_of_their_weights(inflight: dict[str, Any], gap) -> None:
    answers = inflight["keep"]["answers"]
    before, after = boundary(answers)
    assert gap("first", answers, 0, before) < EXACT
    # Old keys and values stay, so the rest is neither the one nor the other.
    assert min(gap(weights, answers, after) for weights in ("other", "first")) > 100 * EXACT


def test_with_the_cache_cleared_the_rest_is_exact(inflight: dict[str, Any], gap) -> None:
    before, after = boundary(inflight["clear"]["answers"])
    assert gap("other", inflight["clear"]["answers"], 0, before) < EXACT
    assert gap("first", inflight["clear"]["answers"], after) < EXACT
    assert inflight["clear"]["update"]["cleared"] and inflight["clear"]["update"]["stale_prefixes"] is False


def test_a_new_request_reuses_stale_prefixes_and_the_update_said_so(inflight: dict[str, Any], gap) -> None:
    assert inflight["stale"]["cached"] == BLOCK
    assert gap("other", [inflight["stale"]]) > 100 * EXACT
    assert inflight["keep"]["update"]["stale_prefixes"] is True
    assert inflight["log"].count("prefixes computed under older weights") == 1


def test_salt_reset_and_clear_each_keep_stale_prefixes_out(inflight: dict[str, Any], gap) -> None:
    for answer, weights in (
        (inflight["salted"], "other"),
        (inflight["reset"]["answer"], "other"),
        (inflight["clear"]["after"], "first"),
    ):
        assert gap(weights, [answer]) < EXACT
    assert inflight["reset"]["update"]["cleared"] and inflight["reset"]["answer"]["cached"] == 0


def test_a_prefix_cache_in_use_is_left_and_that_is_said(inflight: dict[str, Any]) -> None:
    assert inflight["held"]["update"]["cleared"] is False
    assert inflight["held"]["update"]["stale_prefixes"] is True
    assert inflight["held"]["answers"] == IN_FLIGHT


def test_an_update_that_raises_leaves_the_engine_serving(inflight: dict[str, Any], gap) -> None:
    found = inflight["raised"]
    assert all(found["errors"]) and "the trainer is gone" in found["errors"][2]
    assert found["paused"] is False
    assert found["version"] != "bad"
    assert len(found["after"]["token_ids"]) == TOKENS
    assert gap("first", [found["after"]]) < EXACT


def test_one_that_raises_half_way_is_undone_by_the_fallback(inflight: dict[str, Any], gap) -> None:
    found = inflight["half"]
    assert "safetensors" in found["error"].lower() or "header" in found["error"].lower(), found["error"]
    assert [len(answer["token_ids"]) for answer in found["answers"]] == [TOKENS] * IN_FLIGHT
    # The cache was cleared, so that only whole and right weights give exact numbers.
    assert gap("first", found["answers"]) < EXACT
    assert gap("first", [found["after"]]) < EXACT


def test_updates_at_once_and_a_cancelled_one_leave_it_serving(inflight: dict[str, Any]) -> None:
    assert inflight["together"] == {"cancelled": True, "paused": False, "lengths": [TOKENS] * IN_FLIGHT}
