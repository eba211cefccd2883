"""The own parser's tool half inside an engine's tool parser, while the engine keeps the reasoning half.

Patches of single tool parsers put :meth:`Halves.streaming` and :meth:`Halves.full` in; tool_half_serving calls them
from the composed parser, which alone knows the end of a stream, the ids of a whole answer, and ``tool_choice`` "none".
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from engine_overlay.serving.halves import Pair
from engine_overlay.serving.session import vocab_of
from engine_overlay.serving.wire import CallIds, Whole, Wire
from engine_overlay.text.candidates import tool_names
from engine_overlay.text.events import Choice, Event, Kind
from engine_overlay.text.parser import TextParser
from engine_overlay.text.whole import Whole as WholeText

_IDS = CallIds()
_STATE, _WHOLE, _FOUND = "_overlay_half", "_overlay_whole_text", "_overlay_found"
_HALVES = "engine_overlay_halves"


class ToolHalf:
    """Reads what is content for the engine, of one answer.

    ``calls`` is a name of :data:`engine_overlay.text.formats.CALLS`, ``tools`` are those of the request.
    ``tool_parser`` is the engine's; the calls are noted down where its serving code looks for them.
    """

    def __init__(self, wire: Wire, calls: str, tool_parser: Any, tools: Iterable[Any], choice: Choice) -> None:
        # The tool parser keeps this object.
        self._wire, self._owner = wire, weakref.ref(tool_parser)
        form = Pair(None, calls).form
        vocab = vocab_of(tool_parser.model_tokenizer, form)
        # text_and_ids_in_step does that in front of the engine's parser.
        self._parser = TextParser(form, vocab, tools=tools, choice=choice, in_step=True)
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
        owner = self._owner()
        for event in events:
            if event.kind is Kind.CALL:
                self._settle()
                owner.prev_tool_call_arr.append({"name": event.text, "arguments": ""})
                owner.streamed_args_for_tool.append("")
                owner.current_tool_id = event.index
            elif event.kind is Kind.ARGUMENTS:
                self._arguments.append(event.text)

    def _settle(self) -> None:
        """The last call's arguments are whole; joined here once, so that long ones cost no more per character."""
        if self._arguments:
            text = "".join(self._arguments)
            owner = self._owner()
            owner.prev_tool_call_arr[-1]["arguments"] = owner.streamed_args_for_tool[-1] = text
            self._arguments = []


class Halves:
    """The readers of one tool parser class of an engine.

    ``module`` is the engine's, with its message classes; ``package`` the engine's name; ``tags`` the attributes of the
    parser with the opener and the closer; ``formats`` (opener, closer) -> name of the format.
    """

    def __init__(
        self, module: Any, package: str, tags: tuple[str, str], formats: Mapping[tuple[str, str], str]
    ) -> None:
        self._wire = Wire(module, module.make_tool_call_id)
        self._package, self._tags, self._formats = f"{package}.", tags, formats

    def new(self, parser: Any, request: Any) -> ToolHalf | None:
        """A reader for one answer, or None where the original reads it: no tools, or a class of somebody else."""
        calls = self._formats.get(tuple(getattr(parser, name) for name in self._tags))
        tools = getattr(request, "tools", None) or parser.tools
        tokenizer = parser.model_tokenizer
        readable = hasattr(tokenizer, "get_vocab") and hasattr(tokenizer, "decode")
        if calls is None or not readable or not type(parser).__module__.startswith(self._package):
            return None
        if not tool_names(tools):
            return None
        return ToolHalf(self._wire, calls, parser, tools, Choice.NONE if unwanted(request) else Choice.AUTO)

    def of_stream(self, parser: Any, request: Any) -> ToolHalf | None:
        """The reader of this parser's stream."""
        own = parser.__dict__
        reader = own.get(_STATE, own)
        if reader is own:
            reader = own[_STATE] = self.new(parser, request)
        return reader

    def streaming(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """An ``extract_tool_calls_streaming`` for ``original``, the one it replaces."""

        def extract_tool_calls_streaming(
            parser: Any,
            previous_text: str,
            current_text: str,
            delta_text: str,
            previous_token_ids: Sequence[int],
            current_token_ids: Sequence[int],
            delta_token_ids: Sequence[int],
            request: Any,
        ) -> Any:
            reader = self.of_stream(parser, request)
            if reader is not None:
                return reader.delta(delta_text, delta_token_ids)
            given = (previous_text, current_text, delta_text, previous_token_ids, current_token_ids, delta_token_ids)
            return original(parser, *given, request)

        return extract_tool_calls_streaming

    def full(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """An ``extract_tool_calls`` for ``original``, the one it replaces."""

        def extract_tool_calls(parser: Any, model_output: str, request: Any) -> Any:
            reader = self.new(parser, request)
            if reader is None:
                return original(parser, model_output, request)
            own = parser.__dict__
            answer: WholeText | None = own.get(_WHOLE)
            own[_FOUND] = found = reader.whole(model_output, answer.ids_of(model_output) if answer else ())
            return self._wire.extracted(found)

        setattr(extract_tool_calls, _HALVES, self)
        return extract_tool_calls


def halves_of(parser: Any) -> Halves | None:
    """The readers that were put into the class of this tool parser, which may be None."""
    return getattr(getattr(type(parser), "extract_tool_calls", None), _HALVES, None)


def in_stream(parser: Any) -> ToolHalf | None:
    """The reader of the stream that this tool parser is in."""
    return getattr(parser, "__dict__", {}).get(_STATE)


def unwanted(request: Any) -> bool:
    """Whether the request wants no calls."""
    return getattr(request, "tool_choice", None) == "none"


def whole_answer(
    parser: Any, request: Any, answer: WholeText | None, parse: Callable[[], tuple[Any, Any, Any]]
) -> tuple[Any, Any, Any]:
    """(reasoning, content, calls) of ``parse``, in which the tool parser gets the ids of ``answer`` too."""
    own = parser.__dict__
    own[_WHOLE] = answer
    try:
        reasoning, content, calls = parse()
    finally:
        own.pop(_WHOLE, None)
        found: Whole | None = own.pop(_FOUND, None)
    if content and unwanted(request) and (reader := halves_of(parser).new(parser, request)) is not None:
        found = reader.whole(content, answer.ids_of(content) if answer else ())
    # Where there is no call the engine gives back the text as it was.
    return reasoning, content if calls or found is None else found.content, calls
