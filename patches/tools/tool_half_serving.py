"""Tool parsers that the overlay reads by the text learn the end of a stream and the ids of a whole answer.

Symptom: with ``--tool-call-parser hermes`` and ``tool_choice`` "none" the markup of a call stands in ``content``; with
a parser engine it does not. What hermes_by_text and granite4_by_text hold back (``<tool`` may become ``<tool_call>``)
would be lost where the stream ends there.

Cause: ``DelegatingParser`` hands tool parsers without a parser engine text alone, does not tell them the last delta,
and with ``tool_choice`` "none" does not ask them.

Change: for the tool parsers into which one of the two patches has put the overlay's own, what is held comes with the
last delta, a whole answer comes with its token ids, and calls that nobody wants are taken out of the content and not
reported. What stays: every other tool parser.

Risk: none known beyond that of the two.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from engine_overlay.engines import Engine
from engine_overlay.record import Finding, Outcome, Patch, Range, Target
from engine_overlay.serving import tool_half
from engine_overlay.text import handoff
from engine_overlay.text.whole import Whole

_PARSER = "parser.abstract_parser:DelegatingParser"
_PARSE, _LAST = f"{_PARSER}.parse", f"{_PARSER}.finalize_generation"
_DELTA = f"{_PARSER}._extract_tool_calls_streaming"

PATCH = Patch(
    id="tool_half_serving",
    engines={"vllm": Range("0.24.0", "0.33.0"), "aphrodite": Range("0.22.0", "0.24.1")},
    targets=(
        Target(path=_PARSE, bodies=("65c47360fd78", "fee025d0f36a")),
        Target(path=_DELTA, bodies=("546042b032a5", "ad54960ac9e0")),
        Target(path=_LAST, bodies=("ef9ac3ed6145",)),
    ),
    reads=(),
    upstream=(),
    relationship="different approach",
    # Before these releases own_parser serves both halves.
    introduced_in={"vllm": "0.24.0", "aphrodite": "0.22.0"},
    fixed_in={"vllm": None, "aphrodite": None},
    superseded_by=None,
    group=None,
    # In front of it text and ids are put in step where a stop string holds text back.
    requires=("text_and_ids_in_step",),
    conflicts=(),
    after=(),
    default=True,
    default_reason="hermes_by_text and granite4_by_text need it, and other tool parsers are not touched",
    scope=("server",),
    native_alternative=None,
    remove_when="the engine reads these formats with its parser engine",
)


def build(engine: Engine, originals: Mapping[str, Any]) -> Mapping[str, Any]:
    old_parse, old_delta, old_last = originals[_PARSE], originals[_DELTA], originals[_LAST]

    def extract_delta(self: Any, *args: Any, **kwargs: Any) -> Any:
        request, halves = kwargs.get("request"), tool_half.halves_of(self._tool_parser)
        if halves is not None and tool_half.unwanted(request):
            # The original hands everything on as content.
            reader = halves.of_stream(self._tool_parser, request)
            if reader is not None:
                return reader.delta(kwargs["delta_text"], kwargs["delta_token_ids"]), False
        handoff.step_aside(self, "_extract_tool_calls_streaming", extract_delta, old_delta)
        return old_delta(self, *args, **kwargs)

    def finalize_generation(self: Any, delta_message: Any, request: Any, state: Any) -> Any:
        reader = tool_half.in_stream(self._tool_parser)
        if reader is not None:
            delta_message = handoff.merge((delta_message, reader.delta("", (), last=True)))
        return old_last(self, delta_message, request, state)

    def parse(
        self: Any,
        model_output: str,
        request: Any,
        enable_auto_tools: bool = False,
        model_output_token_ids: Sequence[int] = (),
    ) -> Any:
        def stock() -> Any:
            return old_parse(self, model_output, request, enable_auto_tools, model_output_token_ids)

        if tool_half.halves_of(self._tool_parser) is None:
            return stock()
        ids, decode = model_output_token_ids, self.model_tokenizer.decode
        return tool_half.whole_answer(
            self._tool_parser, request, Whole(model_output, ids, decode) if ids else None, stock
        )

    return {_PARSE: parse, _DELTA: extract_delta, _LAST: finalize_generation}


_CALL = '<tool_call>\n{"name": "f", "arguments": {}}\n</tool_call>'


def probe(engine: Engine) -> Finding:
    """Parse a call that nobody wants, and stream an answer that ends with a ``<``, through the hermes parser."""
    if engine.source("parser.engine.parser_engine") is None:
        return Finding(Outcome.ABSENT, "this release has no parser engine, and own_parser serves its hermes parser")
    tokenizer = handoff.tiny_tokenizer(("1", " <", "2", _CALL), ("<tool_call>", "</tool_call>"))
    protocol = engine.module("entrypoints.openai.chat_completion.protocol")
    manager = engine.module("parser.parser_manager").ParserManager
    made = manager.get_parser(tool_parser_name="hermes", enable_auto_tools=True)
    tool = {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}
    common = {"model": "m", "messages": [{"role": "user", "content": "?"}], "tools": [tool]}
    request = protocol.ChatCompletionRequest(**common, tool_choice="none")
    _, content, _ = made(tokenizer, request.tools).parse(f"Hm.{_CALL}", request, True)
    request = protocol.ChatCompletionRequest(**common)
    parser = made(tokenizer, request.tools)
    ids = tokenizer.get_vocab()
    messages = [parser.parse_delta(p, [ids[p]], request, [], finished=p == " <") for p in ("1", " <")]
    streamed = "".join(message.content or "" for message in messages if message is not None)
    evidence = f"a call that nobody wants: content {content!r}; an answer that ends with a <: {streamed!r}"
    if (content, streamed) == ("Hm.", "1 <"):
        return Finding(Outcome.ABSENT, evidence)
    return Finding(Outcome.PRESENT if content == f"Hm.{_CALL}" else Outcome.UNKNOWN, evidence)
