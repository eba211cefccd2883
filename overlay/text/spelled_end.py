"""Makes a spelled end of reasoning look like the special token it should have been.

Parsers that decide by token ids do not see a marker such as ``</think>`` that a model spelled with ordinary
sub-word tokens. :class:`SpelledEnd` stands in front of such a parser. It watches the text, holds back what
may still become the marker, and hands on pieces of (text, token ids) in which a spelled marker carries the id
of its special token. A marker that arrives as its special token is authoritative.

The text of all pieces together is the text that went in, in the same order; the only ids that change are
those of a spelled marker. At most the marker and one more character are held back.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from typing import NamedTuple

from engine_overlay.text.quoting import AHEAD, Said

Decode = Callable[[list[int], bool], str]
"""(token ids, leave special tokens out) -> text, as an engine's tokenizer decodes them."""

PATIENCE = 256
"""Characters to wait for the text of a special token whose id came first."""

_SEEN = 4096  # characters in which the text of these ids is looked for
_RECENT = 16  # token ids that are enough to tell whether the text has caught up with them


class LastText(str):
    """The text of a stream's last delta, so that whoever sees it knows that nothing follows."""

    __slots__ = ()


class Marker(NamedTuple):
    """A marker's text and the id of its special token."""

    text: str
    id: int


class Piece(NamedTuple):
    """A part of the stream that can be handed on as a delta of its own."""

    text: str
    ids: list[int]


class SpelledEnd:
    """The reasoning block of one stream; see the module.

    ``done`` becomes true when the end has been handed on; everything is passed through from then on.
    """

    __slots__ = (
        *("changed", "done", "end", "found", "start"),
        *("_awaited", "_cuts", "_decode", "_opening", "_read", "_runs", "_said", "_scanned"),
    )

    def __init__(self, end: Marker, decode: Decode, start: Marker | None = None, *, cut_special: bool = False) -> None:
        """``start`` is a marker that counts at the very beginning of the answer only, or None.

        A delta with the end's special token in it passes whole, unless a mention of the marker stands in it too
        or the text came later than the id. With ``cut_special`` the token always becomes a piece of its own.
        """
        self._cuts = cut_special
        self.end = end
        self.start = start
        self.done = False
        self.found = False
        """Whether the end that was handed on had been spelled."""
        self.changed = False
        """Whether ids have been handed on that did not come in: a spelled marker was one."""
        self._decode = decode
        self._opening = start is not None
        self._runs: list[Piece] = []
        self._said = Said()
        self._read = 0  # characters of what was handed on that _said has read
        self._scanned = 0  # characters of the held text that are known not to start a real marker
        self._awaited: tuple[int, int] | None = None  # (index among the held ids, occurrences before it)

    @property
    def holding(self) -> bool:
        """Whether text or ids have been held back."""
        return bool(self._runs)

    def passes(self, text: str, ids: Sequence[int]) -> bool:
        """Whether a delta can be handed on as it is, without :meth:`feed`: the case that must be cheap."""
        if self.done:
            return True
        if self._runs or self.end.text[0] in text or self.end.id in ids:
            return False
        if self._opening:
            visible = text.lstrip()
            if visible and visible[0] == self.start.text[0] or self.start.id in ids:
                return False
            self._opening = not visible
        return True

    def feed(
        self, text: str, ids: Sequence[int], before: str, before_ids: Sequence[int], *, last: bool = False
    ) -> list[Piece]:
        """Take a delta; returns the pieces that can be handed on now.

        ``before`` and ``before_ids`` are what has been handed on of this block so far (``before`` back to its
        beginning, for code fences); ``last`` says that the stream ends with this delta, and releases all.
        """
        delta = Piece(text, list(ids))
        if self.done:
            return [delta]
        if text or ids:
            self._runs.append(delta)
        pieces = self._open(last) if self._opening else []
        if self._opening and self._runs:
            return pieces
        late = self._awaited is not None
        where = self._special(before[-_SEEN:] + "".join(p.text for p in pieces), before_ids)
        if self.done:
            return pieces + self._release()
        return pieces + self._scan(before, pieces, where, late, last)

    # -- the two markers

    def _open(self, last: bool) -> list[Piece]:
        """Hand on what the start marker decides; leaves the rest among the held runs."""
        assert self.start is not None
        text = self._text()
        visible = text.lstrip()
        at = len(text) - len(visible)
        known = any(self.start.id in run.ids for run in self._runs)
        if visible.startswith(self.start.text):
            self._opening = False
            if known:
                return self._cut_special(self.start, at, self._index(self.start.id))
            pieces = self._take(at)
            self._take(len(self.start.text))
            self.changed = True
            return [*pieces, Piece(self.start.text, [self.start.id])]
        if known or last or (visible and not self.start.text.startswith(visible)):
            self._opening = False
            return []
        return self._take(at) if visible else self._release()

    def _read_on(self, before: str, pieces: list[Piece]) -> Said:
        """What stands ahead of the held text: ``before``, and ``pieces`` that are handed on with this delta."""
        self._said.feed(before[self._read :])
        self._read = len(before)
        ahead = self._said.copy()
        for piece in pieces:
            ahead.feed(piece.text)
        return ahead

    def _scan(self, before: str, pieces: list[Piece], where: int | None, late: bool, last: bool) -> list[Piece]:
        """Look for a spelled end ahead of ``where``: that of the special token in the held text, or None.

        ``late`` says that the token's id came in an earlier delta than its text.
        """
        text = self._text()
        limit = len(text) if where is None else where
        size = len(self.end.text)
        ahead: Said | None = None
        read = 0
        while 0 <= (at := text.find(self.end.text, self._scanned)) < limit:
            ahead = ahead or self._read_on(before, pieces)
            ahead.feed(text[read:at])
            read = at
            mention = ahead.quotes(text[at + size : at + size + AHEAD] or (None if last else ""))
            if mention is None and not last:
                return [] if self._awaited else self._take(at, early=True)
            if not mention:
                pieces = self._take(at)
                self._take(size)
                self.done = self.found = self.changed = True
                return [*pieces, Piece(self.end.text, [self.end.id]), *self._release()]
            self._scanned = at + size
        if where is not None:
            self.done = True
            if not self._cuts and not late and text.find(self.end.text) == where:
                return self._release()
            pieces = self._cut_special(self.end, where, self._index(self.end.id))
            return pieces + self._release()
        if self._awaited:
            if last or len(text) > PATIENCE:
                self.done = True
                return self._release()
            return []
        unfinished = 0 if last else self._unfinished(text)
        return self._take(len(text) - unfinished, early=True) if unfinished else self._release()

    def _special(self, before: str, before_ids: Sequence[int]) -> int | None:
        """Where in the held text the end marker's own special token stands; None when there is none (yet)."""
        if self._awaited is None:
            if not any(self.end.id in run.ids for run in self._runs):
                return None
            index = self._index(self.end.id)
            ahead = self._ids()[:index]
            spelled = self._decode(ahead, False).count(self.end.text) if len(ahead) > 1 else 0
            self._awaited = (index, spelled)
        text, at = self._text(), -1
        for _ in range(self._awaited[1] + 1):
            at = text.find(self.end.text, at + 1)
            if at < 0:
                break
        if at >= 0:
            return at
        if not self._lags(before, before_ids):
            self.done = True
        return None

    def _lags(self, before: str, before_ids: Sequence[int]) -> bool:
        """Whether the special token's text is still to come; else it has been left out on purpose."""
        if self._decode([self.end.id], True):
            return True
        assert self._awaited is not None
        recent = [*before_ids[-_RECENT:], *self._ids()[: self._awaited[0]]][-_RECENT:]
        seen = before + self._text()
        return not any(seen.endswith(self._decode(recent, skip).lstrip("\ufffd")) for skip in (False, True))

    def _unfinished(self, text: str) -> int:
        """How many characters at the end of ``text`` may still become the end marker."""
        for size in range(min(len(self.end.text) - 1, len(text) - self._scanned), 0, -1):
            if text.endswith(self.end.text[:size]):
                return size
        return 0

    # -- the held runs

    def _text(self) -> str:
        runs = self._runs
        return runs[0].text if len(runs) == 1 else "".join(run.text for run in runs)

    def _ids(self) -> list[int]:
        return [i for run in self._runs for i in run.ids]

    def _index(self, token_id: int) -> int:
        return self._ids().index(token_id)

    def _release(self) -> list[Piece]:
        pieces, self._runs, self._scanned = self._runs, [], 0
        return pieces

    def _take(self, size: int, *, early: bool = False) -> list[Piece]:
        """Take the first ``size`` characters off the held runs, with their ids.

        Where text and ids of a run do not fit each other its ids are left behind, or taken when ``early``.
        """
        pieces: list[Piece] = []
        self._scanned = max(0, self._scanned - size)
        while self._runs:
            run = self._runs[0]
            if size == 0 and run.text:
                break
            if size < len(run.text) or (len(run.ids) > 1 and size == len(run.text)):
                count = self._count(run, size)
                if count is None:
                    count = len(run.ids) if early else 0
                rest = Piece(run.text[size:], run.ids[count:])
                pieces.append(Piece(run.text[:size], run.ids[:count]))
                self._runs[0:1] = [rest] if rest.text or rest.ids else []
                break
            pieces.append(self._runs.pop(0))
            size -= len(run.text)
            if size == 0:
                break
        return pieces

    def _count(self, run: Piece, size: int) -> int | None:
        """How many ids of ``run`` belong to its first ``size`` characters; a token across the cut does not.

        None when the ids do not decode to the text, as when the text lags behind them.
        """
        if len(run.ids) < 2:
            return len(run.ids) if run.ids and size >= len(run.text) else 0
        for skip in (False, True):
            whole = self._decode(run.ids, skip).strip("\ufffd")
            if run.text.endswith(whole):
                # What the text has more at its front belongs to earlier ids, or is lost when decoding alone.
                return self._fitting(run.ids, size - (len(run.text) - len(whole)), skip)
        return None

    def _fitting(self, ids: list[int], size: int, skip: bool) -> int:
        """How many of ``ids`` have no more text than ``size`` characters; bytes of an unfinished one do not count."""
        def text(count: int) -> str:
            return self._decode(ids[:count], skip).lstrip("\ufffd")

        counts = range(len(ids) + 1)
        most = bisect_right(counts, size, key=lambda count: len(text(count).rstrip("\ufffd"))) - 1
        # Ids without text of their own belong to what follows.
        least = bisect_left(counts, size, 0, max(most, 0), key=lambda count: len(text(count).rstrip("\ufffd")))
        if 0 < least < most and not text(least).endswith("\ufffd"):
            return least
        # An id whose text is complete only with the next one stays with it.
        while most > 0 and text(most).endswith("\ufffd"):
            most -= 1
        return max(most, 0)

    def _cut_special(self, marker: Marker, at: int, index: int) -> list[Piece]:
        """Cut the special token ``marker`` out of the held runs; leaves what follows it."""
        text, ids = self._text(), self._ids()
        ahead, after = Piece(text[:at], ids[:index]), Piece(text[at + len(marker.text) :], ids[index + 1 :])
        self._runs = [after] if after.text or after.ids else []
        self._scanned = 0
        pieces = [ahead] if ahead.text or ahead.ids else []
        return [*pieces, Piece(marker.text, [marker.id])]
