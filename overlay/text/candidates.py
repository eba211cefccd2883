"""What one stream remembers for the judgement of spelled markers: the block so far, and the items held back."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Any

from engine_overlay.text.grammar import Before

KEEP = 4096
"""Pieces and characters of the current block that are kept; a code fence opened further back is not seen."""


class Candidates:
    """``pending`` is a candidate and everything that came after it, held back until it is judged.

    ``texts`` and ``ids`` are those of the deltas that are not wholly handed on yet, and of the last one. ``content`` is
    what of that text came after the end of reasoning, where the last delta had one.
    """

    __slots__ = ("_parts", "_whole", "content", "ids", "pending", "seen", "texts")

    def __init__(self) -> None:
        self.pending: list[Any] = []
        self.texts: list[str] = []
        self.ids: list[int] = []
        self.content: str | None = None
        self.new_block()

    def new_block(self) -> None:
        """The format's state has changed: what was said before no longer counts as context."""
        self._parts: deque[str] = deque(maxlen=KEEP)
        self._whole = True
        # Bound once: this is called for every token of a stream.
        self.seen = self._parts.append

    def before(self, *, json_open: bool) -> Before:
        """The block so far, as :class:`engine_overlay.text.grammar.Grammar` wants it."""
        if len(self._parts) == KEEP:
            self._whole = False
        text = "".join(self._parts)
        if len(text) > KEEP:
            text, self._whole = text[-KEEP:], False
        self._parts.clear()
        self._parts.append(text)
        return Before(text, self._whole, self._whole and not text.strip(), json_open)


def tool_names(tools: Iterable[Any] | None) -> frozenset[str]:
    """Names of the tools of a request: Chat Completions and Responses shapes, objects and dicts."""
    names = set()
    for tool in tools or ():
        inner = tool.get("function", tool) if isinstance(tool, dict) else getattr(tool, "function", tool)
        name = inner.get("name") if isinstance(inner, dict) else getattr(inner, "name", None)
        if isinstance(name, str) and name:
            names.add(name)
    return frozenset(names)
