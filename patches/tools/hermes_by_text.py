"""Hermes calls are read true to the text, in streams and in whole answers.

Symptom: an answer that only talks about the tag (``Put JSON into `<tool_call>` tags.``) loses the rest of its content
in a stream. A ``</tool_call>`` inside a JSON string argument ends the arguments there: the stream gives broken JSON,
and a whole answer gives the call as text. What is said behind a call is lost, a tool that nobody declared is called.

Cause: ``Hermes2ProToolParser``, which has no parser engine, looks for the tags by ``find`` and a regular expression
in all of the text so far, and believes each of them.

Change: the overlay's own parser reads the content instead, with the rules of spelled_markers: an opener counts when
the head of a call to a declared tool follows, an end never inside a JSON string. Arguments are passed on as they
come; what is held back comes with the last delta. With ``tool_choice`` "none" calls are taken out of the content and
not reported, as the parser engine does. What stays: the reasoning half, the JSON of guided decoding, which the serving
code reads without this parser, requests that declare no tools, and classes of others that inherit from this one.

Risk: white space right before a call is no content any more. A call that was cut off in its arguments is a call in a
whole answer too, as it is in a stream.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from engine_overlay.engines import Engine
from engine_overlay.record import Finding, Outcome, Patch, Range, Target
from engine_overlay.serving.tool_half import ToolHalf
from engine_overlay.serving.wire import Whole, Wire
from engine_overlay.text import handoff
from engine_overlay.text.candidates import tool_names
from engine_overlay.text.events import Choice
from engine_overlay.text.whole import Whole as WholeText

_MODULE = "tool_parsers.hermes_tool_parser"
_HERMES = f"{_MODULE}:Hermes2ProToolParser"
_FULL, _STREAM = f"{_HERMES}.extract_tool_calls", f"{_HERMES}.extract_tool_calls_streaming"
_PARSER = "parser.abstract_parser:DelegatingParser"
_PARSE, _LAST = f"{_PARSER}.parse", f"{_PARSER}.finalize_generation"
_DELTA = f"{_PARSER}._extract_tool_calls_streaming"

PATCH = Patch(
    id="hermes_by_text",
    engines={"vllm": Range("0.24.0", "0.33.0"), "aphrodite": Range("0.22.0", "0.24.1")},
    targets=(
        Target(path=_FULL, bodies=("6dadebb7c427",)),
        Target(path=_STREAM, bodies=("b06177999728",)),
        Target(path=_PARSE, bodies=("65c47360fd78", "fee025d0f36a")),
        Target(path=_DELTA, bodies=("546042b032a5", "ad54960ac9e0")),
        Target(path=_LAST, bodies=("ef9ac3ed6145",)),
    ),
    reads=(
        # The attributes with the tags, and the tokenizer.
        Target(path=f"{_HERMES}.__init__", bodies=("ee0e5b03a30f",)),
    ),
    upstream=(),
    relationship="different approach",
    # The fault is older; before these releases own_parser serves the same name.
    introduced_in={"vllm": "0.24.0", "aphrodite": "0.22.0"},
    fixed_in={"vllm": None, "aphrodite": None},
    superseded_by=None,
    group=None,
    # In front of it text and ids are put in step where a stop string holds text back.
    requires=("text_and_ids_in_step",),
    conflicts=(),
    after=("full_with_token_ids", "thinking_closed_by_prompt"),
    default=True,
    default_reason="without it answers lose text and calls; healthy answers are the same",
    scope=("server",),
    native_alternative=None,
    remove_when="the engine reads the Hermes format with its parser engine",
)

_STATE, _IDS, _FOUND = "_overlay_half", "_overlay_ids", "_overlay_found"
_FORMATS = {
    ("<tool_call>", "</tool_call>"): "hermes",
    ("<longcat_tool_call>", "</longcat_tool_call>"): "longcat",
}
"""(opener, closer) of a parser -> the name of its format."""


def build(engine: Engine, originals: Mapping[str, Any]) -> Mapping[str, Any]:
    module = engine.module(_MODULE)
    wire = Wire(module, module.make_tool_call_id)
    base, engines_own = module.Hermes2ProToolParser, f"{engine.name}."
    old_full, old_stream, old_parse = (originals[path] for path in (_FULL, _STREAM, _PARSE))
    old_delta, old_last = originals[_DELTA], originals[_LAST]

    def half(parser: Any, request: Any) -> ToolHalf | None:
        """A reader for one answer, or None where the original reads it."""
        calls = _FORMATS.get((parser.tool_call_start_token, parser.tool_call_end_token))
        tools = getattr(request, "tools", None) or parser.tools
        tokenizer = parser.model_tokenizer
        readable = hasattr(tokenizer, "get_vocab") and hasattr(tokenizer, "decode")
        if calls is None or not readable or not type(parser).__module__.startswith(engines_own):
            return None
        if not tool_names(tools):
            return None
        return ToolHalf(wire, calls, parser, tools, Choice.NONE if unwanted(request) else Choice.AUTO)

    def unwanted(request: Any) -> bool:
        return getattr(request, "tool_choice", None) == "none"

    def extract_delta(self: Any, *args: Any, **kwargs: Any) -> Any:
        request = kwargs.get("request")
        if unwanted(request) and isinstance(self._tool_parser, base):
            reader = reader_of(self._tool_parser, request)
            if reader is not None:
                return reader.delta(kwargs["delta_text"], kwargs["delta_token_ids"]), False
        handoff.step_aside(self, "_extract_tool_calls_streaming", extract_delta, old_delta)
        return old_delta(self, *args, **kwargs)

    def reader_of(parser: Any, request: Any) -> ToolHalf | None:
        """The reader of this parser's stream."""
        own = parser.__dict__
        reader = own.get(_STATE, own)
        if reader is own:
            reader = own[_STATE] = half(parser, request)
        return reader

    def extract_tool_calls_streaming(
        self: Any,
        previous_text: str,
        current_text: str,
        delta_text: str,
        previous_token_ids: Sequence[int],
        current_token_ids: Sequence[int],
        delta_token_ids: Sequence[int],
        request: Any,
    ) -> Any:
        reader = reader_of(self, request)
        if reader is not None:
            return reader.delta(delta_text, delta_token_ids)
        given = (previous_text, current_text, delta_text, previous_token_ids, current_token_ids, delta_token_ids)
        return old_stream(self, *given, request)

    def finalize_generation(self: Any, delta_message: Any, request: Any, state: Any) -> Any:
        reader = self._tool_parser.__dict__.get(_STATE) if isinstance(self._tool_parser, base) else None
        if reader is not None:
            delta_message = handoff.merge((delta_message, reader.delta("", (), last=True)))
        return old_last(self, delta_message, request, state)

    def extract_tool_calls(self: Any, model_output: str, request: Any) -> Any:
        reader = half(self, request)
        if reader is None:
            return old_full(self, model_output, request)
        answer: WholeText | None = self.__dict__.get(_IDS)
        found = reader.whole(model_output, answer.ids_of(model_output) if answer is not None else ())
        self.__dict__[_FOUND] = found
        return wire.extracted(found)

    def parse(
        self: Any,
        model_output: str,
        request: Any,
        enable_auto_tools: bool = False,
        model_output_token_ids: Sequence[int] = (),
    ) -> Any:
        tools = self._tool_parser
        if not isinstance(tools, base):
            return old_parse(self, model_output, request, enable_auto_tools, model_output_token_ids)
        own, answer = tools.__dict__, None
        if model_output_token_ids:
            answer = own[_IDS] = WholeText(model_output, model_output_token_ids, self.model_tokenizer.decode)
        try:
            reasoning, content, calls = old_parse(
                self, model_output, request, enable_auto_tools, model_output_token_ids
            )
        finally:
            own.pop(_IDS, None)
            found: Whole | None = own.pop(_FOUND, None)
        if content and unwanted(request) and (reader := half(tools, request)) is not None:
            found = reader.whole(content, answer.ids_of(content) if answer is not None else ())
        # Where there is no call the original gives back the text as it was.
        return reasoning, content if calls or found is None else found.content, calls

    return {
        _FULL: extract_tool_calls,
        _STREAM: extract_tool_calls_streaming,
        _PARSE: parse,
        _DELTA: extract_delta,
        _LAST: finalize_generation,
    }


_PIECES = ("Put", " it", " into", " `", "`", " tags", ".")
_ANSWER = ("Put", " it", " into", " `", "<tool_call>", "`", " tags", ".")
_TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}


def probe(engine: Engine) -> Finding:
    """Stream an answer that talks about the tag, and parse a whole call that has its closer in a string."""
    if engine.source("parser.engine.parser_engine") is None:
        return Finding(Outcome.ABSENT, "this release has no parser engine, and own_parser serves its hermes parser")
    tokenizer = handoff.tiny_tokenizer(_PIECES, ("<tool_call>", "</tool_call>"))
    vocabulary = tokenizer.get_vocab()
    protocol = engine.module("entrypoints.openai.chat_completion.protocol")
    request = protocol.ChatCompletionRequest(model="m", messages=[{"role": "user", "content": "?"}], tools=[_TOOL])
    made = engine.module("parser.parser_manager").ParserManager.get_parser(
        tool_parser_name="hermes", enable_auto_tools=True
    )
    parser = made(tokenizer, request.tools)
    content = ""
    for n, piece in enumerate(_ANSWER):
        message = parser.parse_delta(piece, [vocabulary[piece]], request, [], finished=n == len(_ANSWER) - 1)
        content += (message.content if message else None) or ""
    whole = '<tool_call>\n{"name": "f", "arguments": {"x": "</tool_call>"}}\n</tool_call>'
    _, _, calls = made(tokenizer, request.tools).parse(whole, request, True)
    evidence = f"a mention of the tag gives the content {content!r}, a call with its closer in a string {calls!r}"
    if content == "".join(_ANSWER) and calls and calls[0].arguments == '{"x": "</tool_call>"}':
        return Finding(Outcome.ABSENT, evidence)
    return Finding(Outcome.PRESENT if content == "Put it into `" and not calls else Outcome.UNKNOWN, evidence)
