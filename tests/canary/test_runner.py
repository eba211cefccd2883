"""What a run adds up to: order, percentiles, what only all answers together tell."""

from __future__ import annotations

import random

import pytest

from engine_overlay.canary.answer import Answer
from engine_overlay.canary.runner import Asked, Plan, Run, conclude, percentile
from tests.canary.made import PLAIN

KNOWN = type("Known", (), {"engine": "vllm"})()
UNKNOWN = type("Unknown", (), {"engine": ""})()


@pytest.mark.parametrize(
    ("values", "share", "expected"),
    [
        ([], 0.5, None), ([3.0], 0.5, 3.0), ([3.0], 0.99, 3.0), ([4, 1, 3, 2], 0.5, 2), (range(1, 101), 0.95, 95),
        (range(1, 101), 0.99, 99), (range(1, 6), 0.95, 5), (range(1, 6), 0.0, 1), (range(1, 6), 1.0, 5),
    ],
)  # fmt: skip
def test_percentile(values: list[float], share: float, expected: float | None) -> None:
    assert percentile(values, share) == expected


def test_a_plan_asks_every_question_as_often_as_wanted() -> None:
    plan = Plan(checks=["text", "parallel"], requests=3, levels=(1, 16))
    (check, at_once, asked), *levels = plan.batches(random.Random(1))
    assert (check, at_once) == ("text", 8)
    assert len(asked) == 3 * len({question.name for question in asked})
    assert [(level, len(questions)) for _, level, questions in levels] == [(1, 4), (16, 16)]


def test_one_at_a_time_is_one_at_a_time() -> None:
    assert Plan(checks=["text"], levels=(1,)).batches(random.Random(1))[0][1] == 1


def _stream(first: float, every: float, count: int) -> Asked:
    made = Answer(True, status=200, finish="stop", seconds=first + every * count)
    for number in range(count):
        made.add("content", "a word ", number, first + every * number)
    return Asked(PLAIN, made, [], "")


@pytest.mark.parametrize(
    ("streams", "found"),
    [
        ([_stream(6.0, 0.0001, 100)] * 3, True),
        ([_stream(6.0, 0.0001, 100)] * 2, False),
        ([_stream(0.5, 0.06, 100)] * 3, False),
        ([_stream(6.0, 0.0001, 100)] * 3 + [_stream(0.5, 0.06, 100)], False),
        ([_stream(0.9, 0.0001, 100)] * 30, False),
        ([_stream(6.0, 0.0001, 12)] * 30, False),
    ],
)
def test_streams_in_one_burst(streams: list[Asked], found: bool) -> None:
    fresh = [Asked(one.question, one.answer, [], "") for one in streams]
    conclude(UNKNOWN, Run(asked=fresh))
    assert any(one.found for one in fresh) == found


def test_a_budget_that_a_server_may_not_know_is_not_judged() -> None:
    from engine_overlay.canary import detectors
    from tests.canary.made import answer, asked

    question = asked(fields={"thinking_token_budget": 64})
    for server, kinds in ((KNOWN, ["budget exceeded"]), (UNKNOWN, [])):
        made = answer("4.", "So I think it is so. " * 100)
        one = Asked(question, made, list(detectors.look(question, made)), "")
        conclude(server, Run(asked=[one]))
        assert [found.kind for found in one.found] == kinds
        assert bool(one.unjudged) == (not kinds)
