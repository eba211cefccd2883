"""What an answer says of itself: finish reasons, names and ids of calls."""

from __future__ import annotations

import pytest

from engine_overlay.canary.answer import Answer
from engine_overlay.canary.questions import Question, typed
from tests.canary.made import INTEGER, PLAIN, answer, kinds

GOOD = (("record_integer", '{"value": 7}'),)
NAMED = typed("integer", fields={"tool_choice": {"type": "function", "function": {"name": "record_integer"}}})
REQUIRED = typed("integer", fields={"tool_choice": "required"})
NONE = typed("integer", fields={"tool_choice": "none"})


def _changed(**more: str) -> Answer:
    made = answer(calls=GOOD, reasoning="Hm.")
    for name, value in more.items():
        setattr(made.calls[0], name, value)
    return made


@pytest.mark.parametrize(
    ("question", "made", "kind"),
    [
        (INTEGER, answer("Now.", "Hm.", finish="tool_calls"), "no calls"),
        (INTEGER, answer(reasoning="Hm.", calls=GOOD, finish="stop"), "wrong finish"),
        (PLAIN, answer(reasoning="Hm.", calls=GOOD), "undeclared call"),
        (NONE, answer(reasoning="Hm.", calls=GOOD), "undeclared call"),
        (REQUIRED, answer("Seven.", "Hm."), "call left out"),
        (NAMED, answer("Seven.", "Hm."), "call left out"),
        (INTEGER, _changed(name=""), "broken call"),
        (INTEGER, _changed(id=""), "broken call"),
        (INTEGER, _changed(nameless=True), "broken call"),
    ],
)
def test_what_does_not_agree(question: Question, made: Answer, kind: str) -> None:
    assert kinds(question, made) == [kind]


@pytest.mark.parametrize(
    ("question", "made"),
    [
        (INTEGER, answer(reasoning="Hm.", calls=GOOD)),
        (INTEGER, answer("I call both.", "Hm.", GOOD * 2)),
        (INTEGER, answer("I would rather not.", "Hm.")),
        # A named tool ends with "stop" in the API that all follow.
        (NAMED, answer(reasoning="Hm.", calls=GOOD, finish="stop")),
        (REQUIRED, answer(reasoning="Hm.", calls=GOOD, finish="stop")),
        (REQUIRED, answer(reasoning="Hm, and so on", finish="length")),
        (INTEGER, answer(reasoning="Hm.", calls=GOOD, finish="length")),
        (NONE, answer("Seven.", "Hm.")),
    ],
)
def test_what_agrees(question: Question, made: Answer) -> None:
    assert kinds(question, made) == []
