"""Answers that go round in circles until a limit ends them.

A repetition counts only where the model did not stop by itself: many good answers repeat something, and end.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

from engine_overlay.canary.answer import Answer
from engine_overlay.canary.detectors.tags import TAGS
from engine_overlay.canary.finding import Found
from engine_overlay.canary.questions import Question
from engine_overlay.proxy.loops import Loop

TAIL = 4000
"""Characters at the end of a text that are looked at."""

TIMES = 6
"""How often a unit must follow itself."""

LONG = 200
SHORT = 400
"""Characters that a repetition covers, at least; of units of up to four characters, which also draw lines."""

_SENTENCE = re.compile(r"[^\n.!?\u3002]{20,}[.!?\u3002]?")
EMPTY_THOUGHTS = 8
BLANK_DELTAS = 200


def look(question: Question, answer: Answer) -> Iterator[Found]:
    if found := _says_nothing(question, answer):
        yield found
        return
    if answer.complete or answer.status != 200:
        return
    texts = {"reasoning": answer.reasoning, "content": answer.content}
    texts |= {f"arguments {n}": call.arguments for n, call in enumerate(answer.calls)}
    if not answer.pieces:
        return
    # Only what was being said when it was cut off can be a loop.
    name = answer.pieces[-1].field
    text = texts.get(name, "")
    if unit := repetition(text):
        times, start = unit[1], max(0, len(text) - len(unit[0]) * unit[1])
        said = f"{times} times in a row, {len(unit[0])} characters each, when the answer was cut off"
        yield Found(_kind(unit[0]), said, _shown(unit[0]), name, start, start + len(unit[0]))
    elif sentence := often(text):
        start = text.rfind(sentence[0])
        said = f"one sentence {sentence[1]} times at the end of the answer, which was cut off"
        yield Found("loop", said, _shown(sentence[0]), name, start, start + len(sentence[0]))


def _kind(unit: str) -> str:
    rest = "".join(unit.split())
    if not rest:
        return "blank deltas"
    # Of a unit that begins in the middle of a tag two in a row show it whole.
    left = TAGS.thought.sub("", rest * 3)
    return "empty thoughts" if len(left) <= len(rest) and "think>" in rest else "loop"


def repetition(text: str) -> tuple[str, int] | None:
    """The shortest unit whose repetitions the text ends in, and how often; None when that is no loop."""
    tail = text[-TAIL:]
    size = len(tail)
    for period in range(1, size // TIMES + 1):
        at = size - 1
        while at >= period and tail[at] == tail[at - period]:
            at -= 1
        covered = size - 1 - at + period
        if covered >= TIMES * period and covered >= (SHORT if period <= 4 else LONG):
            return tail[size - period :], covered // period
    return None


def often(text: str) -> tuple[str, int] | None:
    """A sentence that makes up half of the end of the text, with other words between; None when there is none."""
    tail = text[-TAIL // 2 :]
    counts = Counter(s.strip() for s in _SENTENCE.findall(tail))
    if not counts or len(tail) < TAIL // 2:
        return None
    sentence, times = counts.most_common(1)[0]
    return (sentence, times) if times >= 8 and times * len(sentence) * 2 >= len(tail) else None


def _says_nothing(question: Question, answer: Answer) -> Found | None:
    """As the stray-tag filter sees it, which ends such streams."""
    loop = Loop(EMPTY_THOUGHTS, BLANK_DELTAS, tools=bool(question.tools))
    size: Counter[str] = Counter()
    for piece in answer.pieces:
        size[piece.field] += len(piece.text)
        if piece.field.startswith("arguments"):
            loop.something()
        elif piece.text and loop.text(piece.text):
            blank = not piece.text.strip()
            end = size[piece.field]
            if blank:
                if answer.complete:
                    continue
                said = f"{BLANK_DELTAS} deltas in a row with nothing but white space"
                return Found("blank deltas", said, repr(piece.text), piece.field, max(0, end - 4), end)
            text = answer.content if piece.field == "content" else answer.reasoning
            start = max(0, end - 60)
            said = f"{EMPTY_THOUGHTS} empty thoughts in a row"
            return Found("empty thoughts", said, text[start:end], piece.field, start, end)
    return None


def _shown(unit: str) -> str:
    return unit if len(unit) <= 160 else unit[:157] + "..."
