"""The own parser's tool half inside an engine's tool parser, while the engine keeps the reasoning half.

One :class:`ToolHalf` reads what is content for the engine, of one answer.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from engine_overlay.serving.halves import Pair
from engine_overlay.serving.session import vocab_of
from engine_overlay.serving.wire import CallIds, Whole, Wire
from engine_overlay.text.events import Choice, Event, Kind
from engine_overlay.text.parser import TextParser

_IDS = CallIds()


class ToolHalf:
    """``calls`` is a name of :data:`engine_overlay.text.formats.CALLS`, ``tools`` are those of the request.

    ``tool_parser`` is the engine's; the calls are noted down where its serving code looks for them.
    """

    def __init__(self, wire: Wire, calls: str, tool_parser: Any, tools: Iterable[Any], choice: Choice) -> None:
        self._wire, self._owner = wire, tool_parser
        form = Pair(None, calls).form
        tokenizer = tool_parser.model_tokenizer
        # text_and_ids_in_step does that in front of the engine's parser.
        self._parser = TextParser(form, vocab_of(tokenizer, form), tools=tools, choice=choice, in_step=True)
        self._arguments: list[str] = []

    def delta(self, text: str, ids: Sequence[int], *, last: bool = False) -> Any:
        """The ``DeltaMessage`` of what a delta adds, or None; ``last`` releases what is held."""
        events = self._parser.feed(text, ids, last=last)
        if self._parser.called:
            self._note(events)
            if last:
                self._settle()
        return self._wire.delta(events, _IDS) if events else None

    def whole(self, text: str, ids: Sequence[int]) -> Whole:
        """A whole answer's content and calls."""
        return self._wire.whole(self._parser.feed(text, ids, last=True))

    def _note(self, events: list[Event]) -> None:
        for event in events:
            if event.kind is Kind.CALL:
                self._settle()
                self._owner.prev_tool_call_arr.append({"name": event.text, "arguments": ""})
                self._owner.streamed_args_for_tool.append("")
                self._owner.current_tool_id = event.index
            elif event.kind is Kind.ARGUMENTS:
                self._arguments.append(event.text)

    def _settle(self) -> None:
        """The last call's arguments are whole; joined here once, so that long ones cost no more per character."""
        if self._arguments:
            text = "".join(self._arguments)
            self._owner.prev_tool_call_arr[-1]["arguments"] = self._owner.streamed_args_for_tool[-1] = text
            self._arguments = []
