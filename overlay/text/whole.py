"""A finished answer, its token ids, and which ids belong to a part of its text.

What comes in one piece is cut by parsers into reasoning and content, as text. :class:`Whole` finds the ids of such a
part again, so that the parser behind can still tell a special token from the same text spelled out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

Decode = Callable[[list[int]], str]
"""Token ids -> text, special tokens included."""


class Whole:
    """``text`` and ``ids`` of one answer; ids at its end that have no text (the end token) are left out."""

    __slots__ = ("_decode", "ids", "text")

    def __init__(self, text: str, ids: Sequence[int], decode: Decode) -> None:
        self._decode = decode
        self.text = text
        self.ids = list(ids)
        while self.ids and not text.endswith(last := decode(self.ids[-1:])) and "\ufffd" not in last:
            self.ids.pop()

    def ids_of(self, part: str) -> list[int]:
        """The ids of ``part``, a piece of the text that ends where the text ends; empty when it is no such piece.

        A token that lies across the beginning of the part is left out: the part's first characters are then without
        an id.
        """
        if not self.ids or not part:
            return []
        if part == self.text:
            return self.ids
        if not self.text.endswith(part):
            return []
        low, high = 0, len(self.ids)
        while low < high:
            middle = (low + high) // 2
            if len(self._decode(self.ids[middle:])) > len(part):
                low = middle + 1
            else:
                high = middle
        ids = self.ids[low:]
        return ids if ids and part.endswith(self._decode(ids)) else []
