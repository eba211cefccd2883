"""Answers through the chat and responses serving code of the engine found here, asked in many ways.

    python -m tests.patches.unified.on_engine OUT [answers] [names]

Runs in a process of one release. OUT gets what the scenarios give, stream and full, and what the parser managers
hand out; what they must is said beside the scenarios and in the tests.
"""

from __future__ import annotations

import inspect
import json
import logging
import sys
from pathlib import Path
from typing import Any

from tests.patches.unified.scenarios import NAMES, SCENARIOS, TOOLS, Scenario, pieces_of
from tests.patches.unified.serving import Server, add, empty, tidy


def direct(name: str) -> dict[str, Any]:
    """What somebody gets who asks the managers for parsers, and calls them as the serving code does."""
    call = next(s for s in SCENARIOS if s.name == "stock qwen3_xml spelled by 1")
    server = Server(name, call)
    protocol = server.module("entrypoints.openai.chat_completion.protocol")
    tools = [{"type": "function", "function": tool} for tool in TOOLS]
    request = protocol.ChatCompletionRequest(model="m", messages=[{"role": "user", "content": "hi"}], tools=tools)
    manager = server.module("parser.parser_manager").ParserManager
    cls = manager.get_parser("qwen3_coder", "qwen3", True, "m")
    seen: dict[str, Any] = {"reasoning_parser_cls": cls.reasoning_parser_cls.__name__}
    make = lambda: cls(server.tokenizer, request.tools) if _takes_tools(cls) else cls(server.tokenizer)  # noqa: E731

    answer = empty()
    parser = make()
    if hasattr(parser, "parse_delta"):
        finished = "finished" in inspect.signature(parser.parse_delta).parameters
        for result in server.deltas():
            output = result.outputs[0]
            more = {"finished": output.finish_reason is not None} if finished else {}
            message = parser.parse_delta(output.text, output.token_ids, request, server.prompt_ids, **more)
            if message is not None:
                add(answer, message.model_dump())
        seen["parse_delta"] = tidy(answer)
    text = "".join(server.answers[0])
    parser = make()
    reasoning, content = parser._reasoning_parser.extract_reasoning(text, request)
    found = parser._tool_parser.extract_tool_calls(content, request)
    calls = [[c.function.name, json.loads(c.function.arguments)] for c in found.tool_calls]
    seen["two steps"] = {"reasoning": reasoning, "content": (found.content or "").strip(), "calls": calls}
    if hasattr(parser, "parse"):
        reasoning, content, found = make().parse(text, request, True)
        calls = [[c.name, json.loads(c.arguments)] for c in found]
        seen["parse"] = {"reasoning": reasoning, "content": (content or "").strip(), "calls": calls}
    seen["other pair"] = [c.__name__ for c in (manager.get_parser("llama3_json", "qwen3", True, "m"),)]
    return seen


def _takes_tools(cls: type) -> bool:
    return "tools" in inspect.signature(cls.__init__).parameters


def named(name: str) -> dict[str, Any]:
    """What both managers say of the names of the own parsers, and what the engine core asks of such a parser."""
    server = Server(name, SCENARIOS[0])
    reasoning = server.module("reasoning").ReasoningParserManager
    tools = server.module("tool_parsers").ToolParserManager
    seen: dict[str, Any] = {
        "reasoning": [n for n in reasoning.list_registered() if n.endswith("_engine")],
        "tools": [n for n in tools.list_registered() if n.endswith("_engine")],
        "bases": {
            n: [_stock(reasoning.get_reasoning_parser(n)), _stock(tools.get_tool_parser(n))]
            for n in NAMES
            if n in tools.list_registered()
        },
        "core": {},
    }
    for title, text, spelled in (
        ("whole", "Hm.</think>\n\nFour.", False),
        ("spelled", "Hm.</think>\n\nFour.", True),
        ("mention", "The tag `</think>` is", True),
    ):
        pieces = pieces_of(text, spelled)
        server = Server(name, Scenario(title, (text,), (), spelled=spelled))
        parser = reasoning.get_reasoning_parser("qwen3_engine")(server.tokenizer)
        ids = server.ids(pieces)
        said = [parser.is_reasoning_end_streaming(ids[: n + 1], ids[n : n + 1]) for n in range(len(ids))]
        seen["core"][title] = {
            "ends after": "".join(pieces[: said.index(True) + 1]) if True in said else None,
            "whole": parser.is_reasoning_end(ids),
            "reasoning tokens": parser.count_reasoning_tokens(ids),
            "markers": [parser.reasoning_start_str, parser.reasoning_end_str],
        }
    return seen


def _stock(cls: type) -> str:
    """The engine's own class behind this one."""
    return next(c.__qualname__ for c in cls.__mro__ if "engine_overlay_half" not in vars(c))


def kept(name: str) -> dict[str, Any]:
    """What a user registers under a stock name stays."""
    server = Server(name, next(s for s in SCENARIOS if s.name == "no tool parser, deepseek_r1"))
    manager = server.module("reasoning").ReasoningParserManager
    stock = manager.get_reasoning_parser("deepseek_r1")

    class Mine(stock):  # type: ignore[misc, valid-type]
        def extract_reasoning(self, model_output: str, request: Any) -> tuple[str, str]:
            return "mine", model_output

    before = dict(manager.reasoning_parsers)
    manager.register_module("deepseek_r1", module=Mine)
    try:
        return {"full": server.chat()["full"], "class": _stock(manager.get_reasoning_parser("deepseek_r1"))}
    finally:
        manager.reasoning_parsers.clear()
        manager.reasoning_parsers.update(before)


def main(out: str, *parts: str) -> None:
    from engine_overlay import engines, importer

    logging.disable(logging.CRITICAL)
    name = engines.installed()[0].name
    seen: dict[str, Any] = {}
    server = Server(name, SCENARIOS[0])
    # The packages register the stock parsers, both of which a name of the own parsers needs.
    server.module("reasoning")
    known = server.module("tool_parsers").ToolParserManager.list_registered()
    scenarios = [s for s in SCENARIOS if s.tools is None or s.tools in known]
    if "answers" in parts:
        seen["answers"] = {}
        for scenario in scenarios:
            server = Server(name, scenario)
            seen["answers"][scenario.name] = {"chat": server.chat()}
            if scenario.responses:
                seen["answers"][scenario.name]["responses"] = server.responses()
        seen["direct"], seen["kept"] = direct(name), kept(name)
    if "names" in parts:
        seen["named"] = named(name)
        seen["same"] = {s.name: Server(name, s).chat() for s in scenarios if s.by_name}
    seen["overlay"] = importer.overlay is not None
    Path(out).write_text(json.dumps(seen, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
