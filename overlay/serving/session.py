"""The own parsers of one request: one for each of its choices."""

from __future__ import annotations

import copy
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any
from weakref import WeakKeyDictionary

from engine_overlay.serving.asked import Asked, asked
from engine_overlay.serving.halves import Pair
from engine_overlay.serving.wire import CallIds, Carrier, Whole, Wire, parts
from engine_overlay.text.formats import Format
from engine_overlay.text.parser import Choice, Event, Kind, TextParser, Vocab

_vocabs: WeakKeyDictionary[Any, dict[Format, Vocab]] = WeakKeyDictionary()


def vocab_of(tokenizer: Any, form: Format) -> Vocab:
    """What the tokenizer knows of the format, made once: the whole vocabulary is read for it."""
    try:
        known = _vocabs.setdefault(tokenizer, {})
    except TypeError:
        known = {}
    if form not in known:
        special = getattr(tokenizer, "all_special_ids", None) or ()
        known[form] = Vocab(form, tokenizer.get_vocab, tokenizer.decode, special)
    return known[form]


class Reader:
    """One answer of one request; its parser is made when the first text of the answer is there."""

    __slots__ = ("_asked", "_pair", "_prompt", "_tokenizer", "_waiting", "parser")

    def __init__(self, pair: Pair, tokenizer: Any, what: Asked, prompt_ids: Sequence[int] | None = None) -> None:
        self._pair, self._tokenizer, self._asked = pair, tokenizer, what
        self._prompt = prompt_ids
        self._waiting: list[int] = []
        self.parser: TextParser | None = None

    @property
    def called(self) -> bool:
        return self.parser is not None and self.parser.called

    def feed(self, text: str, ids: Sequence[int], *, last: bool = False) -> list[Event]:
        """As :meth:`engine_overlay.text.parser.TextParser.feed`."""
        if self.parser is None:
            if not text.strip() and self._asked.forced and not self._asked.reasoning and not last:
                pass
            self.parser = self._made(text)
        return self.parser.feed(str(text), list(ids), last=last)

    def _made(self, text: str) -> TextParser:
        what, form = self._asked, self._pair.form
        thinking = what.thinking
        if what.forced and not what.reasoning and text.lstrip()[:1] in ("[", "{"):
            # Without reasoning wanted, decoding is guided to JSON from the first token on.
            thinking = False
        parser = TextParser(
            form,
            vocab_of(self._tokenizer, form),
            tools=what.tools,
            choice=what.choice,
            named=what.named,
            thinking=thinking,
        )
        if self._prompt is not None:
            parser.start(self._prompt)
        return parser
