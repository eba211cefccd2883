"""The own parsers of one request, and the outputs of the engine with what they made of them."""

from __future__ import annotations

import copy
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any
from weakref import WeakKeyDictionary

from engine_overlay.serving.asked import ASKED_FOR, Asked, asked
from engine_overlay.serving.halves import Pair
from engine_overlay.serving.wire import CallIds, Carrier, Whole, Wire, parts
from engine_overlay.text.events import Choice, Event, Kind
from engine_overlay.text.formats import Format
from engine_overlay.text.parser import TextParser
from engine_overlay.text.turns import opens
from engine_overlay.text.vocab import Vocab

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


def text_parser(
    pair: Pair, tokenizer: Any, what: Asked, prompt_ids: Sequence[int] | None, first_text: str
) -> TextParser:
    """A parser for one answer that begins with ``first_text``."""
    thinking = what.thinking
    if what.forced and not what.reasoning and first_text.lstrip()[:1] in ("[", "{"):
        # Where no reasoning is wanted, decoding is guided to JSON from the first token on.
        thinking = False
    form = pair.form
    vocab = vocab_of(tokenizer, form)
    if thinking is None and pair.reasoning in ASKED_FOR:
        thinking = opens(prompt_ids or (), vocab.ids.get(form.start or ""), vocab.ids.get(form.end or ""))
    parser = TextParser(form, vocab, tools=what.tools, choice=what.choice, named=what.named, thinking=thinking)
    if prompt_ids is not None:
        parser.start(prompt_ids)
    return parser


class Session:
    """One request: its tokenizer, what it asks for, and a parser for each of its choices."""

    def __init__(
        self,
        wire: Wire,
        pair: Pair,
        tokenizer: Any,
        request: Any,
        template: Mapping[str, Any] | None = None,
        ids: CallIds | None = None,
    ) -> None:
        self._wire, self._pair, self._tokenizer = wire, pair, tokenizer
        self.asked = asked(pair, request, template)
        self._ids = ids or CallIds()
        self._parsers: dict[int, TextParser] = {}

    def events(
        self, index: int, text: str, ids: Sequence[int], prompt_ids: Sequence[int] | None, *, last: bool
    ) -> list[Event]:
        """What a delta of the choice ``index`` adds."""
        parser = self._parsers.get(index)
        if parser is None:
            parser = text_parser(self._pair, self._tokenizer, self.asked, prompt_ids, text)
            self._parsers[index] = parser
        return parser.feed(text, ids, last=last)

    @property
    def reasoning_ended(self) -> bool:
        """Whether the reasoning of the only choice is over."""
        return any(parser.reasoning_ended for parser in self._parsers.values())

    def message(self, events: list[Event]) -> Any:
        """The ``DeltaMessage`` of the events, or None."""
        return self._wire.delta(events, self._ids, reasoning=self.asked.reasoning)

    def whole(self, text: str, ids: Sequence[int], prompt_ids: Sequence[int] | None) -> Whole:
        """A finished answer, parsed in one piece."""
        parser = text_parser(self._pair, self._tokenizer, self.asked, prompt_ids, text)
        events = parser.feed(str(text), list(ids), last=True)
        return self._wire.whole(events, reasoning=self.asked.reasoning, nonempty=self.asked.nonempty)

    async def deltas(self, results: AsyncIterator[Any]) -> AsyncIterator[Any]:
        """The results of a chat stream, the text of every output carrying its ``DeltaMessage``."""
        async for result in results:
            made = copy.copy(result)
            made.outputs = [self._delta(output, result.prompt_token_ids) for output in result.outputs]
            yield made

    def _delta(self, output: Any, prompt_ids: Sequence[int] | None) -> Any:
        last = output.finish_reason is not None
        if not output.text and not output.token_ids and not last:
            return output
        events = self.events(output.index, output.text, output.token_ids, prompt_ids, last=last)
        message = self.message(events)
        if message is None and output.logprobs:
            # The log probabilities of a token whose text is not clear yet; without a message they would not be sent.
            message = self._wire.empty()
        made = copy.copy(output)
        made.text = Carrier(output.text, message)
        if output.finish_reason in ("stop", "length") and self.asked.choice is not Choice.NAMED:
            if self._parsers[output.index].called:
                # The serving code of these releases says it where its own parsers found the call.
                made.finish_reason = "tool_calls"
        return made

    async def contexts(self, results: AsyncIterator[Any]) -> AsyncIterator[Any]:
        """The contexts of a responses stream; one that brings several things comes once for each of them."""
        async for context in results:
            result = getattr(context, "last_output", None)
            if result is None or not getattr(result, "outputs", None):
                yield context
                continue
            output = result.outputs[0]
            last = output.finish_reason is not None
            groups = parts(self.events(0, output.text, output.token_ids, result.prompt_token_ids, last=last)) or [[]]
            # The log probabilities belong to the text that the client sees.
            bearer = max((n for n, group in enumerate(groups) if group and group[0].kind is Kind.CONTENT), default=0)
            for n, group in enumerate(groups):
                part = copy.copy(output)
                part.text = Carrier(output.text if n == bearer else "", self.message(group))
                if n != bearer:
                    part.token_ids, part.logprobs = [], [] if output.logprobs is not None else None
                context.last_output = copy.copy(result)
                context.last_output.outputs = [part]
                yield context
            context.last_output = result

    async def wholes(self, results: AsyncIterator[Any]) -> AsyncIterator[Any]:
        """The results of a chat that is not streamed, the text of every output carrying its :class:`Whole`."""
        async for result in results:
            made = copy.copy(result)
            made.outputs = [copy.copy(output) for output in result.outputs]
            for output in made.outputs:
                output.text = Carrier(output.text, self.whole(output.text, output.token_ids, result.prompt_token_ids))
            yield made
