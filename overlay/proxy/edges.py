"""Stray tags at the edges of one text that comes in pieces.

What is removed is always a whole tag or a known part of one, never the white space around it. The decision depends
on the text only, not on how it was cut into pieces. Text that is still undecided is at the very end of what has come,
and at most :data:`MAX_RUN` characters and one tag long.
"""

from __future__ import annotations

import enum
import re
from bisect import bisect_right

from engine_overlay.proxy.place import Place
from engine_overlay.proxy.tags import DEFAULT, Tags
from engine_overlay.text.quoting import is_mentioned

MAX_RUN = 512
"""Characters of tags and white space in a row that may turn out to be the end of the text."""

MAX_GAP = 32
"""White space that is looked past behind an opener, in characters."""

MAX_NAME = 64
"""Characters of what may be the name of a tool behind the opener of a call."""

_AFTER = 4 * (MAX_GAP + MAX_NAME)
"""Characters behind a tag that are looked at; more than any question about it needs."""

_BLANK = re.compile(r"\s*")
_NAME = re.compile(r"[\w.:/-]+")


class End(enum.Enum):
    """How a text ended: by itself, cut off by a limit, or in a way that tells nothing (then nothing is removed)."""

    WHOLE = "whole"
    CUT = "cut"
    UNKNOWN = "unknown"


class Edges:
    """One text: an answer's content, or a part of it between calls.

    ``reasoned``: reasoning was said before it, apart from it, so an opener of a thought in it opens none.
    ``start``: the text begins here; False when it continues one that the client has.
    """

    __slots__ = ("_at_start", "_open", "_place", "_text", "_reasoned", "_tags", "decided", "removed", "total")

    def __init__(self, tags: Tags = DEFAULT, *, reasoned: bool = False, start: bool = True) -> None:
        self._tags = tags
        self._reasoned = reasoned
        self._at_start = start
        self._text = ""
        self._place = Place()
        self._open: set[str] = set()
        self.total = 0
        """Characters that have come."""
        self.decided = 0
        """Characters whose fate is decided: the first ones."""
        self.removed: list[tuple[int, int]] = []
        """What is removed, as ranges of characters of the whole text, in order."""

    @property
    def in_code(self) -> bool:
        return self._place.in_code

    def feed(self, text: str) -> None:
        self._text += text
        self.total += len(text)
        self._go_on(None)

    def end(self, end: End) -> None:
        """Nothing follows: all is decided."""
        if end is End.UNKNOWN:
            self.give_up()
        else:
            self._go_on(end)

    def give_up(self) -> None:
        """Take what is undecided as text."""
        self._at_start = False
        self._keep(0, len(self._text))
        self._decide(len(self._text))

    def kept(self, text: str, start: int, end: int) -> str:
        """``text``, which is the characters from ``start`` to ``end``, without what is removed."""
        parts, at = [], start
        for number in range(self._first_removed(start), len(self.removed)):
            first, last = self.removed[number]
            if first >= end:
                break
            parts.append(text[at - start : max(first, at) - start])
            at = min(last, end)
        parts.append(text[at - start :])
        return "".join(parts)

    def _first_removed(self, start: int) -> int:
        """The number of the first range that is not before ``start``."""
        # Ranges do not overlap, so their ends are in order as well; a range that only touches cuts nothing.
        number = bisect_right(self.removed, (start, 0))
        return number - 1 if number and self.removed[number - 1][1] > start else number

    # -- both return where in the undecided text they stand; what is before it is decided

    def _go_on(self, end: End | None) -> None:
        at = 0
        if self._at_start:
            at = self._through_start(end)
        if not self._at_start:
            at = self._through_body(at, end)
        self._decide(at)

    def _decide(self, size: int) -> None:
        self.decided += size
        self._text = self._text[size:]

    def _keep(self, start: int, end: int) -> None:
        self._place.feed(self._text[start:end])

    def _remove(self, start: int, end: int) -> None:
        self.removed.append((self.decided + start, self.decided + end))

    def _through_start(self, end: End | None) -> int:
        text, at = self._text, 0
        while True:
            gap = _BLANK.match(text, at).end()
            self._keep(at, gap)
            at = gap
            if at == len(text):
                return at
            stop = self._tags.match(text, at)
            if not stop:
                if end or not self._begins(at):
                    self._at_start = False
                return at
            tag = text[at:stop]
            stray = self._is_stray(tag, text[stop : stop + _AFTER], end is not None)
            if stray is None:
                return at
            if not stray:
                self._at_start = False
                if tag in self._tags.whole and not self._tags.closes(tag):
                    self._open.add(tag)
                self._keep(at, stop)
                return stop
            self._remove(at, stop)
            at = stop

    def _is_stray(self, tag: str, after: str, final: bool) -> bool | None:
        """Whether a tag with nothing before it is stray; None when more has to come to tell."""
        mentioned = is_mentioned("", after, whole=True, final=final)
        if mentioned is not False:
            return None if mentioned is None else False
        if tag not in self._tags.whole or self._tags.closes(tag):
            return True
        rest = after[_BLANK.match(after).end() :]
        far = len(after) - len(rest) > MAX_GAP
        closer = f"</{tag[1:]}"
        if not far and (not rest or (closer.startswith(rest) and not final)):
            return True if final else None
        if not far and rest.startswith(closer):
            return True
        if self._tags.is_thought(tag):
            # With no reasoning before it this is a thought that nobody took out, and belongs to the client.
            return self._reasoned
        return not far and self._is_no_call(rest, final)

    @staticmethod
    def _is_no_call(rest: str, final: bool) -> bool | None:
        """Whether what follows the opener of a call is anything but a call that nobody parsed."""
        name = _NAME.match(rest)
        if not name:
            return rest[0] not in "{[<("
        if name.end() > MAX_NAME:
            # Too long to wait for what follows it, whether or not it has come.
            return False
        if name.end() < len(rest):
            return rest[name.end()] not in "{[<(\n"
        return True if final else None

    def _begins(self, at: int) -> bool:
        """Whether all that is left from ``at`` on can still become a tag."""
        return len(self._text) - at < self._tags.longest and self._text[at:] in self._tags.beginnings

    def _through_body(self, at: int, end: End | None) -> int:
        text, tags = self._text, self._tags
        while True:
            found = tags.find(text, at)
            start = found[0] if found else tags.unfinished(text, at)
            self._keep(at, start)
            at = start
            if at == len(text):
                return at
            whole = text[at : found[2]] in tags.whole if found else text[at] == "<"
            if self._place.is_edge(whole) and not self._behind_tag():
                tokens, stop = self._run(at, end)
                if tokens is None:
                    return at
                if stop == len(text) and end:
                    self._resolve(at, tokens)
                    return stop
                self._open.update(t for _, t in tokens if t in tags.whole and not tags.closes(t))
            else:
                # Of two that run together the second is judged by itself, also when it is not complete yet.
                stop = at + 1 if not found else found[1] if found[1] > at else found[2]
            self._keep(at, stop)
            at = stop

    def _behind_tag(self) -> bool:
        """Whether the last word was a tag that stays; then the next one, as in ``<think></think>``, stays too."""
        solid = self._place.solid
        return solid.endswith(">") and solid.endswith(tuple(self._tags.whole))

    def _run(self, start: int, end: End | None) -> tuple[list[tuple[int, str]] | None, int]:
        """The tags in a row from ``start`` and where the row ends; None for them when more has to come to tell."""
        text, tags, at = self._text, self._tags, start
        tokens: list[tuple[int, str]] = []
        while True:
            if stop := tags.match(text, at):
                tokens.append((at, text[at:stop]))
                at = stop
            elif at < len(text):
                if not end and self._begins(at):
                    return None, at
                rest = text[at : at + tags.longest]
                if end is End.WHOLE and rest in tags.cut and (tokens or self._place.is_edge(False)):
                    tokens.append((at, rest))
                    return tokens, len(text)
                # What stands here is no tag; take one character with it so that the row is behind us.
                return tokens, at if tokens else at + 1
            if at - start > MAX_RUN:
                return tokens, at
            at = min(_BLANK.match(text, at).end(), start + MAX_RUN + 1)
            if at - start > MAX_RUN:
                return tokens, at
            if at == len(text):
                return (tokens if end else None), at

    def _resolve(self, start: int, tokens: list[tuple[int, str]]) -> None:
        """The row ends the text: its tags go, but for those up to one that closes what was opened before."""
        stays = 0
        for number, (_, tag) in enumerate(tokens, 1):
            if tag in self._tags.whole and self._tags.closes(tag) and (opener := f"<{tag[2:]}") in self._open:
                self._open.discard(opener)
                stays = number
        at = start
        for begin, tag in tokens[stays:]:
            self._keep(at, begin)
            at = begin + len(tag)
            self._remove(begin, at)
        self._keep(at, len(self._text))


def clean(text: str, end: End, tags: Tags = DEFAULT, *, reasoned: bool = False, start: bool = True) -> str:
    """A whole text without the stray tags at its edges."""
    edges = Edges(tags, reasoned=reasoned, start=start)
    edges.feed(text)
    edges.end(end)
    return edges.kept(text, 0, len(text)) if edges.removed else text
