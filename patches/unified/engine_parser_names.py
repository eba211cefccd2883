"""One name for reasoning parser and tool parser alike, the same on every release.

Symptom: ``--reasoning-parser qwen3_engine --tool-call-parser qwen3_engine`` is refused as an invalid parser, and which
two names belong together, and how well they do, depends on the release.

Cause: releases with a parser engine compose it from two stock names; the others have no parser for a whole format.

Change: the names ``qwen3_engine``, ``hermes_engine``, ``deepseek_r1_engine``, ``glm_engine``, ``kimi_k2_engine``,
``minimax_m2_engine``, ``deepseek_v32_engine`` and ``deepseek_v4_engine`` are known to the reasoning and tool parser
managers of releases that have the stock parsers of that format. Where the release has no parser engine they stand for
parsers around the overlay's own, else for the stock parsers. What stays: all other names, and one of these that
somebody else has registered.

Risk: none known; a server that uses none of these names is not touched.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from engine_overlay.engines import Engine
from engine_overlay.record import Finding, Outcome, Patch, Range, Target
from engine_overlay.serving import names
from engine_overlay.serving.halves import reasoning_manager, tool_manager
from engine_overlay.text.handoff import tiny_tokenizer

_REASONING = "reasoning.abs_reasoning_parsers:ReasoningParserManager"
_TOOLS = "tool_parsers.abstract_tool_parser:ToolParserManager"
_GET_REASONING, _LIST_REASONING = f"{_REASONING}.get_reasoning_parser", f"{_REASONING}.list_registered"
_GET_TOOLS, _LIST_TOOLS = f"{_TOOLS}.get_tool_parser", f"{_TOOLS}.list_registered"

PATCH = Patch(
    id="engine_parser_names",
    engines={"vllm": Range("0.18.0", "0.33.0"), "aphrodite": Range("0.20.0", "0.24.1")},
    targets=(
        Target(path=_GET_REASONING, bodies=("fe8f2e011968",)),
        Target(path=_LIST_REASONING, bodies=("37f267b7ef44",)),
        Target(path=_GET_TOOLS, bodies=("8fba468c9a57",)),
        Target(path=_LIST_TOOLS, bodies=("685b8677b64d",)),
    ),
    reads=(),
    upstream=(),
    relationship="different approach",
    introduced_in={"vllm": "0.18.0", "aphrodite": "0.20.0"},
    fixed_in={"vllm": None, "aphrodite": None},
    superseded_by=None,
    group=None,
    requires=(),
    conflicts=(),
    after=(),
    default=True,
    default_reason="it adds names and changes nothing for who does not use them",
    scope=("server", "engine core"),
    native_alternative=None,
    remove_when="every supported release has a parser engine",
)


def build(engine: Engine, originals: Mapping[str, Any]) -> Mapping[str, Any]:
    get_reasoning, list_reasoning, get_tools, list_tools = (
        originals[path].__func__ for path in (_GET_REASONING, _LIST_REASONING, _GET_TOOLS, _LIST_TOOLS)
    )

    def get_reasoning_parser(cls: Any, name: str) -> type:
        if names.of_manager(cls, name, cls.reasoning_parsers) and name in names.known(engine):
            return names.reasoning_parser(engine, name, lambda stock: get_reasoning(cls, stock))
        return get_reasoning(cls, name)

    def get_tool_parser(cls: Any, name: str) -> type:
        if names.of_manager(cls, name, cls.tool_parsers) and name in names.known(engine):
            return names.tool_parser(engine, name, lambda stock: get_tools(cls, stock))
        return get_tools(cls, name)

    def list_reasoning_parsers(cls: Any) -> list[str]:
        return sorted({*list_reasoning(cls), *names.known(engine)})

    def list_tool_parsers(cls: Any) -> list[str]:
        return sorted({*list_tools(cls), *names.known(engine)})

    return {
        _GET_REASONING: classmethod(get_reasoning_parser),
        _LIST_REASONING: classmethod(list_reasoning_parsers),
        _GET_TOOLS: classmethod(get_tool_parser),
        _LIST_TOOLS: classmethod(list_tool_parsers),
    }


def probe(engine: Engine) -> Finding:
    """Ask both managers for ``qwen3_engine``, and the classes for what they make of a tokenizer."""
    seen = []
    # The packages register the stock parsers.
    engine.module("reasoning"), engine.module("tool_parsers")
    tokenizer = tiny_tokenizer(("a",), ("<think>", "</think>", "<tool_call>", "</tool_call>"))
    reasoning, tools = reasoning_manager(engine), tool_manager(engine)
    for manager, get in ((reasoning, "get_reasoning_parser"), (tools, "get_tool_parser")):
        if "qwen3_engine" not in manager.list_registered():
            seen.append("not registered")
            continue
        try:
            seen.append(type(getattr(manager, get)("qwen3_engine")(tokenizer)).__name__)
        except KeyError as error:
            seen.append(f"KeyError: {error}"[:80])
    outcome = Outcome.ABSENT
    if any(text == "not registered" or text.startswith("KeyError") for text in seen):
        outcome = Outcome.PRESENT
    return Finding(outcome, f"qwen3_engine: {', '.join(seen)}")
