"""Words of one request in the answer to another one that ran at the same time."""

from __future__ import annotations

from collections.abc import Iterator

from engine_overlay.canary.answer import Answer
from engine_overlay.canary.finding import Found


def look(answer: Answer, others: frozenset[str]) -> Iterator[Found]:
    """``others``: words that only other questions have; they are random, so that no model says one by chance."""
    if not others:
        return
    for name, text in (("content", answer.content), ("reasoning", answer.reasoning)):
        for word in others:
            if (at := text.find(word)) >= 0:
                said = f"the word {word} of another request"
                piece = text[max(0, at - 40) : at + len(word) + 40]
                yield Found("answers mixed up", said, piece, name, at, at + len(word))
                return
