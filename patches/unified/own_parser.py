"""Stock parser names are served by one text-true parser, where an engine has no parser engine.

Symptom: ``ParserManager.get_parser("qwen3_coder", "qwen3")`` gives a parser that ends the reasoning at a mention of
``</think>`` in it when it reads a whole answer, and at the special token only when it reads a stream.

Cause: vLLM up to 0.23 and Aphrodite up to 0.21 join a reasoning parser and a tool parser that know nothing of each
other; the Responses API and the users of the parser manager get that.

Change: for pairs of parsers whose format the overlay reads, the parser class is one around the overlay's parser, and
own_parser_chat and own_parser_responses stand in for them; without this patch they serve the names of
engine_parser_names only. What stays: parsers that are not listed, what a user has registered under a listed name, and
the single reasoning and tool parsers, which the engine core and others ask for by name.

Risk: the class is another than before; code that looks at the private state of the engine's parser finds none.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from engine_overlay.engines import Engine
from engine_overlay.record import Finding, Outcome, Patch, Range, Target
from engine_overlay.serving import classes, names
from engine_overlay.serving.halves import SERVES_STOCK, pair_of
from engine_overlay.text.handoff import tiny_tokenizer

_TARGET = "parser.parser_manager:ParserManager.get_parser"

PATCH = Patch(
    id="own_parser",
    engines={"vllm": Range("0.18.0", "0.23.0"), "aphrodite": Range("0.20.0", "0.21.0")},
    targets=(
        Target(
            path=_TARGET,
            bodies=(
                "0aa0c67649c9",  # vllm 0.18 to 0.22
                "df17da251e1f",  # vllm 0.23
                "8d4948af3e22",  # aphrodite 0.20, 0.21
            ),
        ),
    ),
    reads=(
        # How its answers become output items.
        Target(
            path="parser.abstract_parser:DelegatingParser.extract_response_outputs",
            bodies=("60be8e3e6070", "81ca9e8a3e33"),
        ),
    ),
    upstream=(),
    relationship="different approach",
    introduced_in={"vllm": "0.18.0", "aphrodite": "0.20.0"},
    # These have the parser engine.
    fixed_in={"vllm": "0.24.0", "aphrodite": "0.22.0"},
    superseded_by="spelled_markers",
    group=None,
    requires=(),
    conflicts=(),
    after=(),
    default=True,
    default_reason="without it answers lose text and calls; parsers that are not listed stay as they are",
    scope=("server",),
    native_alternative=None,
    remove_when="vLLM before 0.24.0 and Aphrodite before 0.22.0 are no longer supported",
)


def build(engine: Engine, originals: Mapping[str, Any]) -> Mapping[str, Any]:
    original = originals[_TARGET].__func__

    def get_parser(
        cls: Any,
        tool_parser_name: str | None = None,
        reasoning_parser_name: str | None = None,
        enable_auto_tools: bool = False,
        model_name: str | None = None,
    ) -> Any:
        stock = original(cls, tool_parser_name, reasoning_parser_name, enable_auto_tools, model_name)
        if stock is None:
            return None
        reasoning, tools = stock.reasoning_parser_cls, stock.tool_parser_cls
        pair = pair_of(engine, reasoning, tools)
        return stock if pair is None else classes.parser_class(engine, reasoning, tools, pair)

    # The serving code's patches read it back here, so that one switch is enough for the stock names.
    setattr(get_parser, SERVES_STOCK, True)
    return {_TARGET: classmethod(get_parser)}


_PIECES = ("The", " tag", " `", "`", "</think>", " ends", ".", "Four")


def probe(engine: Engine) -> Finding:
    """Show the parser for qwen3 a whole answer whose reasoning mentions ``</think>`` in backticks."""
    if names.has_parser_engine(engine):
        return Finding(Outcome.ABSENT, "this release has a parser engine")
    tokenizer = tiny_tokenizer(_PIECES, ("<think>", "</think>"))
    manager = engine.module("parser.parser_manager").ParserManager
    protocol = engine.module("entrypoints.openai.chat_completion.protocol")
    request = protocol.ChatCompletionRequest(model="m", messages=[{"role": "user", "content": "?"}])
    parser = manager.get_parser(reasoning_parser_name="qwen3")(tokenizer)
    reasoning, content = parser.extract_reasoning("The tag `</think>` ends it.</think>Four.", request)
    seen = f"reasoning={reasoning!r} content={content!r}"
    if (reasoning, content) == ("The tag `</think>` ends it.", "Four."):
        return Finding(Outcome.ABSENT, seen)
    if reasoning == "The tag `":
        return Finding(Outcome.PRESENT, seen)
    return Finding(Outcome.UNKNOWN, seen)
