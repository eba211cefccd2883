"""Thinking budgets: refused, exceeded, and ends that come where the reasoning was over."""

from __future__ import annotations

import pytest

from engine_overlay.canary.answer import Answer
from engine_overlay.canary.runner import Asked, Run, conclude
from tests.canary.made import PLAIN, answer, asked, kinds

BUDGET = asked(fields={"thinking_token_budget": 64})


def _with_thought_tokens(made: Answer, tokens: int) -> Answer:
    made.usage = {"completion_tokens": tokens + 9, "completion_tokens_details": {"reasoning_tokens": tokens}}
    return made


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        (_with_thought_tokens(answer("4.", "So I think. " * 9), 300), ["budget exceeded"]),
        (_with_thought_tokens(answer("4.", "So I think. " * 9), 66), []),
        (answer("4.", "So I think it is so. " * 100), ["budget exceeded"]),
        (answer("4.", "So I think. " * 40), []),
        (answer("two and two </think> is four", "Hm."), ["budget out of place"]),
        (answer("is four", "Hm.</think>\n\nIt is two and two that"), ["budget out of place"]),
        (answer("`</think>` ends it", "Hm."), []),
    ],
)
def test_budget(made: Answer, expected: list[str]) -> None:
    assert kinds(BUDGET, made) == expected


def test_without_a_budget_it_is_a_leak() -> None:
    assert kinds(PLAIN, answer("is four", "Hm.</think>\n\nIt is two and two that")) == ["tag in reasoning"]


@pytest.mark.parametrize("thinks", [True, False])
def test_a_refusal_counts_only_where_the_model_thinks(thinks: bool) -> None:
    refusal = Answer(True, status=400, refusal="reasoning_config is not configured")
    one = Asked(BUDGET, refusal, [], "")
    from engine_overlay.canary import detectors

    one.found = list(detectors.look(BUDGET, refusal))
    assert [found.kind for found in one.found] == ["budget refused"]
    other = Asked(PLAIN, answer("4.", "Hm." if thinks else ""), [], "")
    server = type("Known", (), {"engine": "vllm"})()
    conclude(server, Run(asked=[one, other]))
    assert bool(one.found) == thinks
    assert bool(one.unjudged) != thinks
