"""``thinking_token_budget``: refused, exceeded, or its forced end in the answer."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

from engine_overlay.canary.answer import Answer
from engine_overlay.canary.finding import Found
from engine_overlay.canary.questions import Question

FIELD = "thinking_token_budget"
_END = re.compile(r"</[\w:]*think>")
SLACK = 16
"""Tokens over the budget that an undecided marker and the engine's own steps may cost."""

CHARACTERS = 16
"""Characters of a token that none exceeds on average, where the server does not count tokens of thought."""


def refused(question: Question, answer: Answer) -> Iterator[Found]:
    """Only for a server that knows the field; others refuse what they do not know, and rightly."""
    if question.fields.get(FIELD) is not None and answer.status == 400 and "reasoning" in answer.refusal.lower():
        yield Found("budget refused", f"status {answer.status}", answer.refusal)


def look(question: Question, answer: Answer) -> Iterator[Found]:
    budget = question.fields.get(FIELD)
    if not isinstance(budget, int) or answer.status != 200:
        return
    tokens, size = answer.thought_tokens, len(answer.reasoning)
    if tokens is not None and tokens > budget + SLACK and size:
        said = f"{tokens} tokens of reasoning with a budget of {budget}"
    elif tokens is None and size > (budget + SLACK) * CHARACTERS:
        said = f"{size} characters of reasoning with a budget of {budget} tokens"
    else:
        return
    yield Found("budget exceeded", said, answer.reasoning[-80:], "reasoning", max(0, size - 80), size)


def renamed(question: Question, answer: Answer, leaked: Sequence[Found]) -> Iterator[Found]:
    """With a budget, an end of thought in the answer is the forced one, and one in the reasoning was not seen."""
    forced = question.fields.get(FIELD) is not None and bool(answer.reasoning.strip())
    for found in leaked:
        ends = found.kind in ("thoughts in content", "tag", "tag in reasoning") and bool(_END.search(found.said))
        yield replace(found, kind="budget out of place") if forced and ends else found
