"""Where in an answer a tag stands: in code, in quotes, in a sentence about it, or at an edge.

Follows :mod:`engine_overlay.text.quoting` in what is a quote, but keeps count while text goes by, in bounded memory,
so that an answer of any length is judged as one of a page.
"""

from __future__ import annotations

import re

_FENCE = re.compile(r"[ \t]*(?:>[ \t]*)*(```+|~~~+)[ \t]*(.*)", re.DOTALL)
_TICKS = re.compile(r"`+")
_BULLET = re.compile(r"\s*(?:[-*+>|]+\s*|\d+[.)]\s+)")
_GOES_ON = frozenset(":,;=([{<'/\\|&+@#$^~\u201c\u2018\u00ab\uff1a\uff0c\u3001\uff1b\uff08")
"""Characters after which more of the sentence, or what is talked about, follows."""

HEAD = 120
SOLID = 40


class Place:
    """What has been said so far in one text."""

    __slots__ = ("_fence", "_gap", "_head", "_quotes", "_tick_last", "_ticks", "solid")

    def __init__(self) -> None:
        self.solid = ""
        """The last characters up to the last one that is not blank."""
        self._gap = ""
        self._head = ""
        self._ticks = 0
        self._quotes = 0
        self._tick_last = False
        self._fence = ""

    def feed(self, text: str) -> None:
        """``text`` comes next in the answer."""
        if not text:
            return
        first, *others = text.split("\n")
        self._more_of_line(first)
        for line in others:
            self._end_line()
            self._more_of_line(line)
        solid = text.rstrip()
        if solid:
            self.solid = (self.solid + self._gap + solid)[-SOLID:]
            self._gap = ""
        gap = text[len(solid) :]
        if gap:
            self._gap = "\n" if "\n" in gap or "\n" in self._gap else " "

    @property
    def in_code(self) -> bool:
        return bool(self._fence) or self._ticks % 2 == 1

    def is_edge(self, whole: bool) -> bool:
        """Whether a tag that comes now stands at the edge of what was said, and is not part of it.

        ``whole``: it is a whole tag; of a part of one more is asked, because words and other tags have such parts.
        """
        if self.in_code or self._quotes % 2 == 1:
            return False
        if not self.solid:
            return True
        last = self.solid[-1]
        if last in _GOES_ON or self._head.startswith(("    ", "\t")):
            return False
        if self._gap == "\n":
            return True
        if _BULLET.fullmatch(self._head):
            return False
        word = last.isalnum() or last in "_-\u2013\u2014"
        if self._gap:
            # "It ends with </think>" is about the tag; "It is done. </think>" is not.
            return not word and last not in '">*`\u201d'
        if last in "_-\u2013\u2014" or (self.solid.endswith(("**", "__")) and self.solid[-3:-2] in ("", " ", "\n")):
            return False
        return whole or not (word or last in ">-")

    def _more_of_line(self, text: str) -> None:
        if not text:
            return
        if "`" in text:
            self._ticks += len(_TICKS.findall(text)) - (self._tick_last and text[0] == "`")
        self._tick_last = text[-1] == "`"
        if '"' in text:
            self._quotes += text.count('"')
        if len(self._head) < HEAD:
            self._head += text[: HEAD - len(self._head)]

    def _end_line(self) -> None:
        found = _FENCE.fullmatch(self._head) if "```" in self._head or "~~~" in self._head else None
        if found:
            kind, info = found.group(1)[0], found.group(2).strip()
            if not self._fence and "`" not in info:
                self._fence = kind
            elif self._fence == kind and not info:
                self._fence = ""
        self._head = ""
        self._ticks = self._quotes = 0
        self._tick_last = False
