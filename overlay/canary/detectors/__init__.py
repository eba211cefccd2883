"""One file for each kind of fault: ``look(question, answer)`` gives what it found.

They judge one answer by itself, and only what is wrong whatever the model meant: an answer that is odd but well-formed,
and a tag that is quoted or talked about, are none of theirs.
"""

from __future__ import annotations

from collections.abc import Iterator

from engine_overlay.canary.answer import Answer
from engine_overlay.canary.detectors import (
    agreement,
    arguments,
    budget,
    loops,
    mixed,
    protocol,
    quotes,
    swallowed,
    tags,
)
from engine_overlay.canary.finding import Found
from engine_overlay.canary.questions import Question


def look(question: Question, answer: Answer, others: frozenset[str] = frozenset()) -> Iterator[Found]:
    """All that is wrong with one answer. ``others``: the words of other questions, which must not be in it."""
    found = list(protocol.look(question, answer))
    yield from found
    if answer.status != 200:
        yield from budget.refused(question, answer)
        return
    if any(f.kind in ("unreadable answer", "broken event", "out of order") for f in found):
        # What is put together from such events says nothing.
        return
    loop = list(loops.look(question, answer))
    yield from loop
    yield from mixed.look(answer, others)
    leaked: list[Found] = []
    if not loop:
        leaked = [*quotes.look(question, answer), *tags.look(question, answer)]
        yield from budget.renamed(question, answer, leaked)
        yield from budget.look(question, answer)
        yield from swallowed.look(question, answer, leaked)
    # A call that arrived in the wrong place was not left out.
    lost = any(f.kind in ("call in reasoning", "call as text") for f in leaked)
    yield from (f for f in agreement.look(question, answer) if not (lost and f.kind == "call left out"))
    yield from arguments.look(question, answer)
