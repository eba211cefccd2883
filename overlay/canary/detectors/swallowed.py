"""Answers of which nothing arrives, although the model said something."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from engine_overlay.canary.answer import Answer
from engine_overlay.canary.detectors.tags import TAGS
from engine_overlay.canary.finding import Found
from engine_overlay.canary.questions import Question
from engine_overlay.text.quoting import is_quoted

TOKENS = 5
"""Tokens that an answer needs for nothing: the end of its thoughts, line ends, its own end."""


def look(question: Question, answer: Answer, leaked: Sequence[Found]) -> Iterator[Found]:
    if not answer.complete or answer.content.strip() or answer.calls or answer.finish != "stop":
        return
    if any(found.kind == "call in reasoning" for found in leaked):
        # The same fault, told better.
        return
    text, tokens = answer.reasoning, answer.tokens or 0
    # Tokens that are in neither text were dropped.
    thought = answer.thought_tokens if answer.thought_tokens is not None else tokens
    dropped = tokens - (thought if text else 0) - len(answer.content)
    start, end = _end_of_thought(text)
    if text.strip() and (end or dropped <= TOKENS):
        said = "finish_reason is stop, and content is empty"
        if end:
            said += f"; the reasoning goes on behind {text[start:end]}"
        else:
            start, end = max(0, len(text) - 60), len(text)
        piece = text[max(0, start - 40) : end + 40]
        yield Found("answer in reasoning", said, piece, "reasoning", start, end)
    elif dropped > TOKENS:
        said = f"{dropped} tokens by the server's count are in no text and no call"
        yield Found("nothing delivered", said, events=_last(answer))


def _end_of_thought(text: str) -> tuple[int, int]:
    """Where an end of a thought stands in the reasoning that is not quoted; (0, 0) when there is none."""
    for found in TAGS.thought.finditer(text):
        if TAGS.closes(found.group()) and not is_quoted(text[: found.start()], text[found.end() :] or None, whole=True):
            return found.start(), found.end()
    return 0, 0


def _last(answer: Answer) -> str:
    shown = [event.decode("utf-8", "replace").strip()[:300] for event in answer.events.values()]
    return "\n".join(shown[-3:])
