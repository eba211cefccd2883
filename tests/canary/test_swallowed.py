"""Answers of which nothing arrives, and empty ones that are the model's own."""

from __future__ import annotations

import pytest

from engine_overlay.canary.answer import Answer
from engine_overlay.canary.judging import unjudged
from tests.canary.made import INTEGER, PLAIN, answer, kinds


@pytest.mark.parametrize(
    ("made", "kind"),
    [
        (answer(reasoning="It is 4.</think>\n\nThe answer is 4."), "answer in reasoning"),
        (answer(reasoning="It is 4."), "answer in reasoning"),
        (answer(reasoning="It is 4.", content="\n\n"), "answer in reasoning"),
        (answer(tokens=40), "nothing delivered"),
    ],
)
def test_nothing_arrives(made: Answer, kind: str) -> None:
    assert kinds(PLAIN, made) == [kind]


@pytest.mark.parametrize(
    ("made", "why"),
    [
        (answer(reasoning="It is 4, or is it", finish="length"), "the thoughts took all of --max-tokens"),
        (answer(tokens=2), "an empty answer"),
        (answer(finish="content_filter", tokens=40), "an empty answer"),
        (answer("<think>\nIt is 4.</think>\n4"), "the thoughts come inside the content (no reasoning parser)"),
    ],
)
def test_nothing_arrives_and_nobody_is_to_blame(made: Answer, why: str) -> None:
    assert kinds(PLAIN, made) == []
    assert unjudged(PLAIN, made) == why


def test_a_call_is_an_answer() -> None:
    made = answer(reasoning="I call.", calls=(("record_integer", '{"value": 7}'),))
    assert kinds(INTEGER, made) == []
    assert unjudged(INTEGER, made) == ""


def test_a_model_that_declines_to_call_is_not_judged() -> None:
    made = answer("I cannot do that.", "Hm.")
    assert kinds(INTEGER, made) == []
    assert unjudged(INTEGER, made) == "the model called no tool"
