"""Keeps the text of a stream and its token ids in step, where a request's stop string holds the text back.

A detokenizer that must not release the beginning of a stop string gives out text up to ``len(stop) - 1`` characters
late, while the ids are not held. A parser that pairs the ids of a delta with its text then cuts the text in the
wrong place. :class:`InStep` hands on text and ids up to the same token boundary only.

A stream whose text does not lag is recognised by its first tokens and is never touched.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from engine_overlay.text import handoff

Decode = Callable[[list[int], bool], str]
"""(token ids, leave special tokens out) -> text."""

CONTEXT = 8
"""Ids already handed on that are decoded together with the next ones, since some tokenizers look at neighbours."""

PATIENCE = 512
"""Ids that may wait for their text before the stream is given up and passed on as it is."""

REPLACEMENT = "\ufffd"


class InStep:
    """One stream. ``lags`` is None until it is known whether text comes later than its ids."""

    __slots__ = ("_decode", "_ids", "_skip", "_tail", "_text", "lags")

    def __init__(self, decode: Decode) -> None:
        self.lags: bool | None = None
        self._decode = decode
        self._text = ""
        self._ids: list[int] = []
        self._tail: list[int] = []
        self._skip = False

    def feed(self, text: str, ids: Sequence[int], *, last: bool) -> tuple[str, list[int]] | None:
        """Take a delta; returns the text and ids to hand on now, or None when that is nothing.

        With ``last`` everything that is held is handed on. All text comes out once and in order; ids that have no
        text in the stream at its end (those of the stop string itself) do not come out, except special tokens.
        """
        if self.lags is None:
            self._notice(text, ids)
        self._text += text
        self._ids += ids
        if not self.lags or len(self._ids) > PATIENCE:
            return self._give_up()
        size, count = self._fit()
        if not last:
            if count == len(self._ids) and size == len(self._text):
                # A text that is held back always trails, so this one is not.
                return self._give_up()
            return self._release(size, count) if size or count else None
        if not count:
            return self._give_up()
        behind = [i for i in self._ids[count:] if not self._decode([i], True)]
        text, ids = self._text, self._ids[:count] + behind
        self._text, self._ids = "", []
        return text, ids

    def _notice(self, text: str, ids: Sequence[int]) -> None:
        if not self._decode(list(ids), False).rstrip(REPLACEMENT):
            return
        # What is left out of the text altogether (special tokens) is no lag, but where nothing else came yet it
        # may be either.
        shown = self._decode(list(ids), True).rstrip(REPLACEMENT)
        self.lags = len(text) < len(shown) or not (text or shown)

    def _give_up(self) -> tuple[str, list[int]]:
        if self.lags is not None:
            self.lags = False
        return self._release(len(self._text), len(self._ids))

    def _fit(self) -> tuple[int, int]:
        """(characters, ids) up to the last token boundary that the text has reached; (0, 0) when there is none."""
        for skip in (self._skip, not self._skip):
            base = self._decode(self._tail, skip)
            size = count = 0
            for n in range(1, len(self._ids) + 1):
                part = self._decode(self._tail + self._ids[:n], skip)[len(base) :]
                if part.endswith(REPLACEMENT):
                    continue
                if len(part) > len(self._text):
                    break
                if self._text[: len(part)] != part:
                    break
                size, count = len(part), n
            if count:
                self._skip = skip
                return size, count
        return 0, 0

    def _release(self, size: int, count: int) -> tuple[str, list[int]]:
        text, ids = self._text[:size], self._ids[:count]
        self._text, self._ids = self._text[size:], self._ids[count:]
        self._tail = (self._tail + ids)[-CONTEXT:]
        return text, ids


_STATE = "_engine_overlay_in_step"


def in_front_of(original: Callable[..., Any]) -> Callable[..., Any]:
    """An engine's ``parse_delta`` that keeps text and ids in step for ``original``, the method it replaces."""

    def parse_delta(
        self: Any,
        delta_text: str,
        delta_token_ids: list[int],
        request: Any,
        prompt_token_ids: list[int] | None = None,
        *,
        finished: bool,
    ) -> Any:
        stream = self.__dict__.get(_STATE)
        if stream is None:
            stream = self.__dict__[_STATE] = InStep(_decoder(self.model_tokenizer))
        taken = stream.feed(delta_text, delta_token_ids, last=finished)
        if stream.lags is False:
            # The first tokens have shown it; nothing is held any more.
            handoff.step_aside(self, "parse_delta", parse_delta, original)
        if taken is None:
            return None
        return original(self, taken[0], taken[1], request, prompt_token_ids, finished=finished)

    return parse_delta


def _decoder(tokenizer: Any) -> Decode:
    # Not every tokenizer of an engine can leave special tokens out by itself, or decode at all.
    special = frozenset(getattr(tokenizer, "all_special_ids", ()))
    whole = getattr(tokenizer, "decode", None)

    def decode(ids: list[int], skip_special: bool) -> str:
        if skip_special:
            ids = [i for i in ids if i not in special]
        return whole(ids) if ids and whole is not None else ""

    return decode
