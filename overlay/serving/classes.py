"""Classes of an engine's own kinds with the own parser inside: a reasoning parser, a tool parser, and both in one.

They inherit from the stock classes they stand for, so that everything else an engine asks of a parser (schemas for
guided decoding, structural tags, markers) is the stock answer. The serving code gets its answers without them
(:mod:`engine_overlay.serving.stand_ins`); they are for everyone who asks an engine for a parser by its name.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Iterable, Sequence
from typing import Any

from engine_overlay.engines import Engine
from engine_overlay.serving.asked import asked
from engine_overlay.serving.halves import HALF, Pair
from engine_overlay.serving.session import Session, text_parser, vocab_of
from engine_overlay.serving.wire import CallIds, Carrier, Whole, Wire
from engine_overlay.text.quoting import AHEAD, CONTEXT, Said
from engine_overlay.text.spelled_end import LastText


@functools.cache
def wire_of(engine: Engine) -> Wire:
    chat = engine.module("entrypoints.chat_utils")
    classes = engine.module("entrypoints.openai.engine.protocol")
    return Wire(classes, chat.make_tool_call_id, chat.get_history_tool_calls_cnt)


def _is_last(text: str, ids: Sequence[int], tokenizer: Any) -> bool:
    return isinstance(text, LastText) or getattr(tokenizer, "eos_token_id", None) in ids


def _with_whole(text: str, whole: Whole, end: str | None) -> str | None:
    """The content of a whole answer, carrying its calls; a text with calls is never empty, so that it is looked at."""
    if not whole.calls:
        return whole.content
    behind = text.rpartition(end)[2] if end else text
    return Carrier(behind or text, whole)


@functools.cache
def reasoning_class(engine: Engine, stock: type, pair: Pair) -> type:
    """A reasoning parser that reads ``pair.reasoning``; a whole answer's calls travel in its content."""
    only = Pair(pair.reasoning, None)
    end = only.form.end

    class OwnReasoning(stock):  # type: ignore[misc, valid-type]
        # reasoning_handoff_inline leaves classes with this attribute alone.
        _engine_overlay_streams = None

        def __init__(self, tokenizer: Any, *args: Any, **kwargs: Any) -> None:
            super().__init__(tokenizer, *args, **kwargs)
            self._own_template = kwargs.get("chat_template_kwargs")
            self._own_stream: Session | None = None

        def extract_reasoning(self, model_output: str, request: Any) -> tuple[str | None, str | None]:
            if isinstance(model_output, Carrier):
                whole = model_output.parsed
            else:
                session = Session(wire_of(engine), pair, self.model_tokenizer, request, self._own_template)
                whole = session.whole(model_output, (), None)
            return whole.reasoning, _with_whole(model_output, whole, end)

        def extract_reasoning_streaming(
            self,
            previous_text: str,
            current_text: str,
            delta_text: str,
            previous_token_ids: Sequence[int],
            current_token_ids: Sequence[int],
            delta_token_ids: Sequence[int],
        ) -> Any:
            if self._own_stream is None or not (previous_text or previous_token_ids):
                self._own_stream = Session(wire_of(engine), only, self.model_tokenizer, None, self._own_template or {})
            last = _is_last(delta_text, delta_token_ids, self.model_tokenizer)
            events = self._own_stream.events(0, delta_text, delta_token_ids, None, last=last)
            return self._own_stream.message(events)

        def is_reasoning_end(self, input_ids: Sequence[int]) -> bool:
            if self._own_stream is not None:
                return self._own_stream.reasoning_ended
            if super().is_reasoning_end(input_ids):
                return True
            known = vocab_of(self.model_tokenizer, only.form).markers
            return known.keys().isdisjoint(input_ids) and _says_end(self.model_tokenizer, input_ids, end)

        def is_reasoning_end_streaming(self, input_ids: Sequence[int], delta_ids: Iterable[int]) -> bool:
            if self._own_stream is not None:
                return self._own_stream.reasoning_ended
            delta = list(delta_ids)
            if super().is_reasoning_end_streaming(input_ids, delta):
                return True
            recent = list(input_ids)[-(CONTEXT + len(delta)) :]
            before = recent[: len(recent) - len(delta)]
            tokenizer = self.model_tokenizer
            return _says_end(tokenizer, recent, end) and not _says_end(tokenizer, before, end)

        def count_reasoning_tokens(self, token_ids: Sequence[int]) -> int:
            parser = text_parser(only, self.model_tokenizer, asked(only, None, self._own_template or {}), None, "")
            ids = list(token_ids)
            decode = self.model_tokenizer.decode
            parser.feed(decode(ids), ids, last=True)
            if parser.end_offset is None:
                return super().count_reasoning_tokens(token_ids)
            low, high = 0, len(ids)
            while low < high:
                middle = (low + high) // 2
                if len(decode(ids[: middle + 1])) <= parser.end_offset - len(end):
                    low = middle + 1
                else:
                    high = middle
            markers = vocab_of(self.model_tokenizer, only.form).markers
            return sum(i not in markers for i in ids[:low])

    if not hasattr(stock, "reasoning_end_str"):
        # vllm 0.18 does not ask for them yet.
        OwnReasoning.reasoning_start_str, OwnReasoning.reasoning_end_str = only.form.start, end
    return _named(OwnReasoning, stock, pair.reasoning)


def _says_end(tokenizer: Any, ids: Sequence[int], end: str) -> bool:
    """Whether the text of these ids has the end of reasoning in it, other than as a mention."""
    text = tokenizer.decode(list(ids)) if len(ids) else ""
    # Of what stands near its beginning it may be all that was said.
    whole, cut, read = Said(True), Said(False), 0
    at = text.find(end)
    while at >= 0:
        for said in (whole, cut):
            said.feed(text[read:at])
        read, after = at, at + len(end)
        if (whole if at < CONTEXT else cut).quotes(text[after : after + AHEAD]) is False:
            return True
        at = text.find(end, at + 1)
    return False


@functools.cache
def tool_class(engine: Engine, stock: type, pair: Pair) -> type:
    """A tool parser that reads ``pair.calls``."""
    only = Pair(None, pair.calls)
    takes_tools = len(inspect.signature(stock.__init__).parameters) > 2

    class OwnTools(stock):  # type: ignore[misc, valid-type]
        def __init__(self, tokenizer: Any, tools: Any = None) -> None:
            super().__init__(*((tokenizer, tools) if takes_tools else (tokenizer,)))
            self._own_stream: Session | None = None

        def extract_tool_calls(self, model_output: str, request: Any) -> Any:
            wire = wire_of(engine)
            if isinstance(model_output, Carrier):
                return wire.extracted(model_output.parsed)
            return wire.extracted(Session(wire, only, self.model_tokenizer, request).whole(model_output, (), None))

        def extract_tool_calls_streaming(
            self,
            previous_text: str,
            current_text: str,
            delta_text: str,
            previous_token_ids: Sequence[int],
            current_token_ids: Sequence[int],
            delta_token_ids: Sequence[int],
            request: Any,
        ) -> Any:
            if self._own_stream is None or not (previous_text or previous_token_ids):
                self._own_stream = Session(wire_of(engine), only, self.model_tokenizer, request)
            last = _is_last(delta_text, delta_token_ids, self.model_tokenizer)
            return self._own_stream.message(self._own_stream.events(0, delta_text, delta_token_ids, None, last=last))

    return _named(OwnTools, stock, pair.calls)


@functools.cache
def parser_class(engine: Engine, reasoning: type | None, tools: type | None, pair: Pair) -> type:
    """A unified parser that reads the pair, for these two classes of the engine (or of this module)."""
    base = engine.module("parser.abstract_parser").DelegatingParser
    composes = "tools" in inspect.signature(base.__init__).parameters
    own_reasoning = reasoning and (reasoning if HALF in vars(reasoning) else reasoning_class(engine, reasoning, pair))
    own_tools = tools and (tools if HALF in vars(tools) else tool_class(engine, tools, pair))

    class OwnParser(base):  # type: ignore[misc, valid-type]
        reasoning_parser_cls = own_reasoning
        tool_parser_cls = own_tools

        def __init__(self, tokenizer: Any, tools: Any = None, *args: Any, **kwargs: Any) -> None:
            if composes:
                super().__init__(tokenizer, tools, *args, **kwargs)
            else:
                super().__init__(tokenizer)
                self._reasoning_parser = own_reasoning and own_reasoning(tokenizer, *args, **kwargs)
                self._tool_parser = own_tools and own_tools(tokenizer, tools)
            self._own_template = kwargs.get("chat_template_kwargs")
            self._own_stream: Session | None = None

        def _own_session(self, request: Any, ids: CallIds | None = None) -> Session:
            return Session(wire_of(engine), pair, self.model_tokenizer, request, self._own_template, ids)

        def parse_delta(
            self,
            delta_text: str,
            delta_token_ids: Sequence[int],
            request: Any,
            prompt_token_ids: Sequence[int] | None = None,
            *,
            finished: bool | None = None,
        ) -> Any:
            if self._own_stream is None:
                state = getattr(self, "_stream_state", None)
                ids = CallIds(getattr(state, "tool_call_id_type", "random"), getattr(state, "history_tool_call_cnt", 0))
                self._own_stream = self._own_session(request, ids)
            if finished is None:
                finished = _is_last(delta_text, delta_token_ids, self.model_tokenizer)
            stream = self._own_stream
            events = stream.events(0, delta_text, delta_token_ids, prompt_token_ids, last=finished)
            return stream.message(events)

        def extract_reasoning(self, model_output: str, request: Any) -> tuple[str | None, str | None]:
            if isinstance(model_output, Carrier):
                whole = model_output.parsed
            else:
                whole = self._own_session(request).whole(model_output, (), None)
            return whole.reasoning, _with_whole(model_output, whole, pair.form.end)

        def extract_response_outputs(self, *args: Any, **kwargs: Any) -> list[Any]:
            ids, text = kwargs.get("model_output_token_ids"), kwargs.get("model_output")
            if text is not None and not isinstance(text, Carrier):
                whole = self._own_session(kwargs.get("request")).whole(text, ids or (), None)
                kwargs["model_output"] = Carrier(text, whole)
            return super().extract_response_outputs(*args, **kwargs)

        # The two names under which the base class looks for calls in what extract_reasoning has left.
        def _parse_tool_calls(self, request: Any, content: Any, enable_auto_tools: bool = False) -> tuple[Any, Any]:
            if isinstance(content, Carrier):
                return content.parsed.calls, content.parsed.content
            return [], content

        def _extract_tool_calls(self, content: Any, request: Any, enable_auto_tools: bool = False) -> tuple[Any, Any]:
            calls, content = self._parse_tool_calls(request, content, enable_auto_tools)
            return calls or None, content

    OwnParser.__name__ = OwnParser.__qualname__ = "OwnParser"
    return OwnParser


def answered(engine: Engine, whole: Whole) -> Any:
    """A unified parser of the engine that has one answer only, for its ``extract_response_outputs``."""
    return _answered_class(engine)(whole)


@functools.cache
def _answered_class(engine: Engine) -> type:
    base = engine.module("parser.abstract_parser").DelegatingParser

    class Answered(base):  # type: ignore[misc, valid-type]
        def __init__(self, whole: Whole) -> None:
            self._own_whole = whole

        def extract_reasoning(self, model_output: Any, request: Any) -> tuple[str | None, str | None]:
            return self._own_whole.reasoning, self._own_whole.content

        def _parse_tool_calls(self, *args: Any, **kwargs: Any) -> tuple[Any, Any]:
            return self._own_whole.calls, self._own_whole.content

    return Answered


def _named(made: type, stock: type, half: str | None) -> type:
    made.__name__ = made.__qualname__ = stock.__name__
    made.__module__, made.__doc__ = stock.__module__, stock.__doc__
    setattr(made, HALF, half)
    return made
