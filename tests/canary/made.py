"""Questions and answers for tests of one detector."""

from __future__ import annotations

from typing import Any

from engine_overlay.canary import detectors
from engine_overlay.canary.answer import Answer, Call
from engine_overlay.canary.questions import Question, typed

PLAIN = Question(check="text", name="plain", messages=({"role": "user", "content": "What is 2 and 2?"},))
ABOUT = Question(
    check="quotes", name="about", messages=({"role": "user", "content": "What is that tag for?"},), about_tags=True
)
INTEGER = typed("integer")


def asked(**more: Any) -> Question:
    return Question(check="text", name="made", messages=({"role": "user", "content": "What is 2 and 2?"},), **more)


def answer(
    content: str = "",
    reasoning: str = "",
    calls: tuple[tuple[str, str], ...] = (),
    finish: str | None = None,
    tokens: int | None = None,
) -> Answer:
    """A streamed answer, one character a delta, that is right but for what is given."""
    made = Answer(True, status=200, finish=finish or ("tool_calls" if calls else "stop"))
    for name, text in (("reasoning", reasoning), ("content", content)):
        for character in text:
            number = len(made.pieces) + 1
            made.events[number] = b'data: {"delta":"' + character.encode("utf-8", "surrogatepass") + b'"}\n\n'
            made.add(name, character, number, number / 100)
    for index, (name, arguments) in enumerate(calls):
        made.calls.append(Call(f"call-{index}", name, arguments))
        made.add(f"arguments {index}", arguments, len(made.pieces) + 1, 9.0)
    if tokens is not None:
        made.usage = {"completion_tokens": tokens}
    return made


def kinds(question: Question, given: Answer) -> list[str]:
    """What all detectors together find."""
    return [found.kind for found in detectors.look(question, given)]
