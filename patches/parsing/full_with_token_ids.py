"""Without streaming, the token ids of the answer are looked at as well.

Symptom: a model that only talks about a tag loses text when it is not streamed: a JSON answer with ``"</think>"`` in
a string is cut there, and an argument's value loses the ``</think>`` that it holds. The same answer streamed is right.

Cause: ``DelegatingParser.parse`` is given ``model_output_token_ids`` and does not use them, so the parser engines
take every tag in the text for the special token.

Change: the engines behind ``parse`` get the ids that belong to the text they are given, as they do for a stream. What
stays: parsers that are not built on the parser engine, and calls of ``parse`` without ids.

Risk: an answer whose ids do not decode to its text is parsed by its text alone, as before.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from engine_overlay.engines import Engine
from engine_overlay.record import Finding, Outcome, Patch, Range, Target
from engine_overlay.text import handoff
from engine_overlay.text.whole import Whole

_PARSE = "parser.abstract_parser:DelegatingParser.parse"
_FEED = "parser.engine.parser_engine:ParserEngine._feed"

PATCH = Patch(
    id="full_with_token_ids",
    engines={"vllm": Range("0.24.0", "0.33.0"), "aphrodite": Range("0.22.0", "0.24.1")},
    targets=(Target(path=_PARSE, bodies=("65c47360fd78", "fee025d0f36a")),),
    reads=(
        Target(path=_FEED, bodies=("052849ee85d1",)),
        Target(
            path="parser.engine.parser_engine:ParserEngine.extract_reasoning",
            bodies=("a5a9205c26a5",),
        ),
        Target(
            path="parser.engine.parser_engine:ParserEngine.extract_tool_calls_from_content",
            bodies=("2472138ceb1b",),
        ),
    ),
    upstream=(),
    relationship="different approach",
    introduced_in={"vllm": "0.24.0", "aphrodite": "0.22.0"},
    fixed_in={"vllm": None, "aphrodite": None},
    superseded_by=None,
    group=None,
    # It takes the ids, and judges the spelled markers, which the engine takes for text where there are ids.
    requires=("spelled_markers",),
    conflicts=(),
    # That one goes in without the parser engines, for which this one waits.
    after=("tool_half_serving",),
    default=True,
    default_reason="what is streamed and what is not are then the same answer",
    scope=("server",),
    native_alternative=None,
    remove_when="DelegatingParser.parse hands the ids on to the engines",
)


def build(engine: Engine, originals: Mapping[str, Any]) -> Mapping[str, Any]:
    """A wrapper that lays the ids ready for the engines behind the parser."""
    original = originals[_PARSE]

    def parse(
        self: Any,
        model_output: str,
        request: Any,
        enable_auto_tools: bool = False,
        model_output_token_ids: Sequence[int] = (),
    ) -> Any:
        parsers = [getattr(p, "_parser_engine", None) for p in (self._reasoning_parser, self._tool_parser)]
        engines = [parser._engine for parser in parsers if parser is not None]
        if not model_output_token_ids or not engines:
            return original(self, model_output, request, enable_auto_tools, model_output_token_ids)
        whole = Whole(model_output, model_output_token_ids, self.model_tokenizer.decode)
        for inner in engines:
            inner._overlay_whole = whole
        try:
            return original(self, model_output, request, enable_auto_tools, model_output_token_ids)
        finally:
            for inner in engines:
                inner._overlay_whole = None

    return {_PARSE: parse}


_PIECES = ("Hm", ".", '{"end": "', "</", "think", ">", '"}')
_ANSWER = ("Hm", ".", "</think>", '{"end": "', "</", "think", ">", '"}')


def probe(engine: Engine) -> Finding:
    """Parse a JSON answer that names ``</think>`` in a string, with its ids, through the Qwen3 parser."""
    if engine.source("parser.engine.parser_engine") is None:
        return Finding(Outcome.ABSENT, "this release has no parser engine")
    tokenizer = handoff.tiny_tokenizer(_PIECES, ("<think>", "</think>", "<tool_call>", "</tool_call>"))
    vocabulary = tokenizer.get_vocab()
    protocol = engine.module("entrypoints.openai.chat_completion.protocol")
    request = protocol.ChatCompletionRequest(model="m", messages=[{"role": "user", "content": "?"}])
    manager = engine.module("parser.parser_manager").ParserManager
    parser = manager.get_parser(reasoning_parser_name="qwen3")(tokenizer)
    ids = [vocabulary[piece] for piece in _ANSWER]
    reasoning, content, _ = parser.parse("".join(_ANSWER), request, False, ids)
    evidence = f"reasoning={reasoning!r} content={content!r}"
    if (reasoning, content) == ("Hm.", '{"end": "</think>"}'):
        return Finding(Outcome.ABSENT, evidence)
    if (reasoning, content) == ("Hm.", '{"end": ""}'):
        return Finding(Outcome.PRESENT, evidence)
    return Finding(Outcome.UNKNOWN, evidence)
