"""Where reasoning ends in a stream of token ids, for whoever sees no text: the engine core and the workers.

Most tokens cannot belong to an end and cost one look into a table. Where the last character of a marker turns up, the
last few ids are decoded; only when a whole marker stands there is more of the block decoded, :data:`CONTEXT` ids ahead
of it at the most, and the marker judged, by the same rules as in the API server (:mod:`engine_overlay.text.grammar`,
:mod:`engine_overlay.text.quoting`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from engine_overlay.text.grammar import TOOL, AnyName, Before, Grammar, Role, Source

Ids = Sequence[int]

CONTEXT = 2048
"""Ids ahead of a marker that are read to judge it; a code fence that was opened before them is not seen."""


class Vocabulary:
    """What the tokens of a tokenizer say, kept for all streams of a format.

    ``markers`` are the texts that may end reasoning. Needs ``decode`` and ``encode`` of the tokenizer;
    ``get_added_vocab`` tells its special tokens.
    """

    __slots__ = ("_lasts", "_looks", "added", "markers", "tokenizer", "window")

    def __init__(self, tokenizer: Any, markers: Iterable[str]) -> None:
        self.tokenizer = tokenizer
        self.markers = tuple(markers)
        # A part of a character that is not ASCII decodes to the replacement character.
        self._lasts = {last if last.isascii() else "\ufffd" for last in (m[-1] for m in self.markers)}
        self._looks: dict[int, bool] = {}
        added = getattr(tokenizer, "get_added_vocab", dict)()
        self.added = frozenset(added.values()) | frozenset(getattr(tokenizer, "all_special_ids", ()))
        # A token has at least one byte, and three make up a character that is not ASCII.
        self.window = max(len(marker.encode()) for marker in self.markers) + 1

    def decode(self, ids: Ids) -> str:
        """The text of these ids; none where the tokenizer knows one of them not, as for a padded vocabulary."""
        try:
            return self.tokenizer.decode(list(ids), skip_special_tokens=False) or ""
        except (IndexError, KeyError, OverflowError, TypeError, ValueError):
            return ""

    def encode(self, text: str) -> list[int]:
        return list(self.tokenizer.encode(text, add_special_tokens=False))

    def worth_a_look(self, token_id: int) -> bool:
        """Whether an end may be complete with this token."""
        known = self._looks.get(token_id)
        if known is None:
            piece = self.decode([token_id])
            known = token_id in self.added or any(last in piece for last in self._lasts)
            self._looks[token_id] = known
        return known


class NamesIn(AnyName):
    """The tools that a text declares, for whoever has the text only: every name that stands in it."""

    _read: Callable[[], str]

    def __new__(cls, read: Callable[[], str]) -> NamesIn:
        """``read`` gives the text; it is called when a call by a well-formed name has been found."""
        made = super().__new__(cls)
        made._read = read
        return made

    def __contains__(self, name: object) -> bool:
        return super().__contains__(name) and str(name) in self._read()


@dataclass(frozen=True, slots=True)
class Ended:
    """Where reasoning ended.

    ``count``: ids of the block up to and including the one in which the end is complete, or, for the opener of a call,
    in which the opener begins. ``rest``: what that id says of the answer already. ``decided``: how many ids were there
    when it was known. ``special``: the engine saw it itself. ``opener``: a call ended it.
    """

    count: int
    rest: str
    decided: int
    special: bool = False
    opener: bool = False


class EndInIds:
    """The end of one stream's reasoning. The ids given are those of the block, from its beginning.

    ``grammar`` has the markers that may end it. ``asks``: whether the engine itself sees an end in the last of these
    ids, which is asked of added tokens; without it they are judged by the grammar too.
    """

    __slots__ = ("_asks", "_grammar", "_judged", "_names", "_open", "_seen", "_vocabulary", "ended")

    def __init__(
        self,
        vocabulary: Vocabulary,
        grammar: Grammar,
        names: AnyName,
        asks: Callable[[Ids], bool] | None = None,
    ) -> None:
        self._vocabulary, self._grammar, self._names, self._asks = vocabulary, grammar, names, asks
        self.ended: Ended | None = None
        self._seen = 0
        self._judged = 0  # ids before which every marker has been judged
        self._open = False

    @property
    def undecided(self) -> bool:
        """Whether a marker was seen that only what follows will decide."""
        return self._open

    def copy(self) -> EndInIds:
        """The same stream, to look at what may follow and forget it again."""
        other = EndInIds(self._vocabulary, self._grammar, self._names, self._asks)
        other.ended, other._seen, other._judged = self.ended, self._seen, self._judged
        other._open = self._open
        return other

    def feed(self, ids: Ids) -> Ended | None:
        """Look at what is new in ``ids``; the end once there is one. A negative id is one that is not known yet."""
        if self.ended is not None:
            return self.ended
        if len(ids) < self._seen:
            # Drafts that were taken back.
            self._seen = self._judged = min(self._judged, len(ids))
            self._open = False
        looks, worth = self._vocabulary._looks, self._vocabulary.worth_a_look
        for at in range(self._seen, len(ids)):
            token = ids[at]
            if token < 0:
                break
            self._seen = at + 1
            look = looks.get(token)
            if self._open or (look if look is not None else worth(token)):
                if not self._open:
                    self._judged = at
                self._look(ids, at + 1)
                if self.ended is not None:
                    break
        return self.ended

    def dismiss(self) -> None:
        """Take the end that was found for text after all, and go on."""
        assert self.ended is not None
        self._judged = self._seen = self.ended.decided
        self.ended, self._open = None, False

    def unfinished(self, ids: Ids) -> bool:
        """Whether ``ids`` end in the middle of what may become a marker."""
        known = [i for i in ids[-self._vocabulary.window :] if i >= 0]
        text = self._vocabulary.decode(known) if known else ""
        return any(text.endswith(m[:n]) for m in self._vocabulary.markers for n in range(1, len(m)))

    def _look(self, ids: Ids, upto: int) -> None:
        token, vocabulary = ids[upto - 1], self._vocabulary
        if self._asks is not None and token in vocabulary.added and self._asks(ids[:upto]):
            self.ended = Ended(upto, "", upto, special=True)
            return
        if not self._open:
            recent = vocabulary.decode(ids[max(0, upto - vocabulary.window) : upto])
            if not any(marker in recent for marker in vocabulary.markers):
                return
        ids = ids[:upto]
        base = max(0, self._judged - vocabulary.window)
        begin = max(0, base - CONTEXT)
        ahead = vocabulary.decode(ids[begin:base]) if base else ""
        lowest = len(ahead) + len(vocabulary.decode(ids[base : self._judged]))
        text = ahead + vocabulary.decode(ids[base:])
        self._open = False
        for at, marker in self._occurrences(text, lowest):
            real = self._judge(ids, base, len(ahead), text, at, marker, whole=not begin)
            if real is None:
                self._open = True
                return
            if real:
                opener = self._grammar.moves[Role.REASONING, marker] in TOOL
                self._end(ids, base, ahead, text, at if opener else at + len(marker), opener)
                return

    def _occurrences(self, text: str, lowest: int) -> list[tuple[int, str]]:
        """(where, which) of the markers that end behind ``lowest``, in order; of two at one place the longer."""
        found: dict[int, str] = {}
        for marker in self._vocabulary.markers:
            at = text.find(marker, max(0, lowest - len(marker) + 1))
            while at >= 0:
                if len(marker) > len(found.get(at, "")):
                    found[at] = marker
                at = text.find(marker, at + 1)
        return sorted(found.items())

    def _judge(
        self, ids: Ids, base: int, ahead: int, text: str, at: int, marker: str, *, whole: bool
    ) -> bool | None:
        source = Source.SPELLED
        count, _ = self._count(ids, base, at + len(marker) - ahead)
        if ids[count - 1] in self._vocabulary.added and marker in self._vocabulary.decode([ids[count - 1]]):
            if self._asks is not None:
                return False  # the engine was asked, and does not end here
            source = Source.SPECIAL
        before = Before(text[:at], whole=whole, blank=whole and not text[:at].strip())
        after = text[at + len(marker) :].rstrip("\ufffd")
        return self._grammar.judge(Role.REASONING, marker, before, after, self._names, final=False, source=source)

    def _count(self, ids: Ids, base: int, chars: int) -> tuple[int, int]:
        """(ids, characters from ``base`` on) with which the first ``chars`` characters behind ``base`` are complete."""
        low, high = base, len(ids)
        while low < high:
            middle = (low + high) // 2
            if len(self._vocabulary.decode(ids[base:middle]).rstrip("\ufffd")) >= chars:
                high = middle
            else:
                low = middle + 1
        return low, len(self._vocabulary.decode(ids[base:low]).rstrip("\ufffd"))

    def _end(self, ids: Ids, base: int, ahead: str, text: str, at: int, opener: bool) -> None:
        count, chars = self._count(ids, base, at - len(ahead))
        self.ended = Ended(count, text[at : len(ahead) + chars], len(ids), opener=opener)
