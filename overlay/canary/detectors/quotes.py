"""A text that was cut where the model only quoted a tag: ``The tag ` `` in one field, `` ` closes it`` in the next."""

from __future__ import annotations

import re
from collections.abc import Iterator

from engine_overlay.canary.answer import Answer
from engine_overlay.canary.finding import Found
from engine_overlay.canary.questions import Question

_TICKS = re.compile(r"`+")


def look(question: Question, answer: Answer) -> Iterator[Found]:
    reasoning, content = answer.reasoning, answer.content
    if (mark := _opened(reasoning)) and content.startswith(mark):
        piece = f"{reasoning[-40:]} | {content[:40]}"
        end = len(reasoning)
        said = "the reasoning ends with an opening quote, and the answer begins with the closing one"
        yield Found("cut at a quoted tag", said, piece, "reasoning", end - 1, end)
        return
    if answer.complete and not answer.calls and _opened(content) == "`":
        said = "the answer ends right behind an opening backtick: the tag and what follows are lost"
        yield Found("cut at a quoted tag", said, content[-60:], "content", len(content) - 1, len(content))


def _opened(text: str) -> str:
    """The backtick or quotation mark that a text ends with, when it is one that opens; else nothing."""
    line = text[text.rfind("\n") + 1 :]
    if line.endswith("`"):
        ticks = _TICKS.findall(line)
        return "`" if len(ticks) % 2 and ticks[-1] == "`" else ""
    return '"' if line.endswith('"') and line.count('"') % 2 else ""
