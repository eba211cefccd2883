"""A model that says nothing, for ever: empty thoughts one after the other, or deltas with nothing in them."""

from __future__ import annotations

from engine_overlay.proxy.tags import DEFAULT, Tags

UNITS = 32
"""What a blank delta counts where no tool is declared, and a delta of white space everywhere.

Parsers of tool calls send empty deltas while they collect arguments, so with tools an empty one counts 1.
"""


class Loop:
    """Watches one choice. Either limit may be 0 for none."""

    __slots__ = ("_blank", "_blank_limit", "_rest", "_tags", "_thought_limit", "_thoughts", "_unit")

    def __init__(self, empty_thoughts: int, blank_deltas: int, *, tools: bool, tags: Tags = DEFAULT) -> None:
        self._tags = tags
        self._thought_limit = 2 * empty_thoughts
        self._blank_limit = UNITS * blank_deltas
        self._unit = 1 if tools else UNITS
        self._thoughts = 0
        self._rest = ""
        self._blank = 0

    def text(self, text: str) -> bool:
        """A delta of reasoning or content; whether the limit of tags of thoughts in a row is reached."""
        if not text.strip():
            self._blank += UNITS if text else self._unit
            return self._over()
        self._blank = 0
        if not self._thought_limit:
            return False
        if not self._rest and "<" not in text:
            self._thoughts = 0
            return False
        self._count(self._rest + text)
        return self._thoughts >= self._thought_limit

    def nothing(self) -> bool:
        """A delta with no text in it; whether the limit of blank ones is reached."""
        self._blank += self._unit
        return self._over()

    def something(self) -> None:
        """A delta that is not text and no blank either, such as one of a call."""
        self._blank = self._thoughts = 0
        self._rest = ""

    def _over(self) -> bool:
        return 0 < self._blank_limit <= self._blank

    def _count(self, text: str) -> None:
        at, size = 0, len(text)
        while True:
            while at < size and text[at].isspace():
                at += 1
            if found := self._tags.thought.match(text, at):
                self._thoughts += 1
                at = found.end()
                continue
            rest = text[at:]
            if not rest or (rest[0] == "<" and rest in self._tags.beginnings):
                self._rest = rest
                return
            self._thoughts = 0
            at = text.find("<", at + 1)
            if at < 0:
                self._rest = ""
                return
