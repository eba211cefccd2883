"""What a client gets when the end of reasoning is spelled, for each reasoning parser that looks at ids.

    python -m tests.patches.reasoning.handoff_on_engine FILE

Runs in a process of one release that was started with the overlay, goes through that release's chat serving
code, and writes what came as JSON; test_reasoning_handoff judges it. "on" is asked first, then the patches are
undone for "off".
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.matrix import cases as public
from tests.matrix.serving_code import ServingCode
from tests.patches.reasoning.on_engine import TOOLS, reasoning_parsers

PATCHES = ("reasoning_handoff", "reasoning_handoff_inline", "last_delta_chat", "last_delta_responses")
_FIELDS = {
    "deepseek_v3": {"thinking": True},
    "poolside_v1": {"thinking": True},
    "hy_v3": {"reasoning_effort": "high"},
}
_SPECIAL = (
    "<think> </think> <seed:think> </seed:think> <|channel> <channel|> <|START_THINKING|> <|END_THINKING|> "
    "<ifm|think> </ifm|think> <|turn> <|tool_call> <|tool_response> <|tool_calls_section_begin|> "
    "<tool_call> </tool_call>"
).split()
_CALL = '{"name": "get_weather", "arguments": {"city": "Ulm", "days": 3}}'


def spelled(marker: str) -> list[str]:
    return [marker[:2], marker[2:-1], marker[-1]]


def variants(start: str | None, end: str) -> Iterator[tuple[str, list[str], str]]:
    """(name, pieces, finish reason); a name with ``atomic`` is what a healthy model sends."""
    answer = ["\n\n", "Four", "."]
    for how, own in (("atomic", [end]), ("spelled", spelled(end))):
        yield f"plain {how}", ["Hm", ".", *own, *answer], "stop"
        yield f"joined {how}", ["Hm", *([".", end] if how == "atomic" else ["." + end[:1], end[1:]]), *answer], "stop"
        yield f"call {how}", ["Hm", ".", *own, "\n", "<tool_call>", "\n", _CALL, "\n", "</tool_call>"], "stop"
        if start is not None:
            opening = [start] if how == "atomic" else spelled(start)
            yield f"started {how}", [*opening, "Hm", ".", *own, *answer], "stop"
    yield "mention", ["Say", " `", *spelled(end), "`", ".", end, *answer], "stop"
    yield "prefix", ["a", " <", "b", " </", "i", ">", " c", end, *answer], "stop"
    yield "cut", ["Hm", " ", end[:2], end[2:5]], "length"


def as_case(pieces: list[str], finish: str, parser: str, tools: str | None, start: str | None) -> public.Case:
    return {
        "reasoning_parser": parser,
        "tool_parser": tools,
        "tools": [tool["function"] for tool in TOOLS] if tools else [],
        "prompt_pieces": ["<|im_start|>", "assistant", "\n", *([start] if start else [])],
        "atomic": _SPECIAL,
        "token_pieces": pieces,
        "deltas": "each",
        "chat_template_kwargs": _FIELDS.get(parser, {}),
        "engine_finish": finish,
    }


def watched(engine: Any) -> dict[str, tuple[str, str | None]]:
    """(end, start) of each registered reasoning parser that the patches stand in front of."""
    from engine_overlay.text import handoff
    from tests.matrix.tokens import DEFAULT_SPECIAL, CaseTokenizer

    tokenizer, found = CaseTokenizer(DEFAULT_SPECIAL, _SPECIAL, []), {}
    for name, parser_class in reasoning_parsers(engine):
        try:
            parser = parser_class(tokenizer, chat_template_kwargs=_FIELDS.get(name, {}))
        except Exception:  # it wants another tokenizer
            continue
        marks = None if getattr(parser, "engine_based_streaming", False) else handoff.markers(parser)
        if marks is not None:
            end, start = marks
            found[name] = (end.text, start.text if start else None)
    return found


def answers(engine: Any, code: ServingCode, ways: tuple[str, ...]) -> dict[str, Any]:
    """parser -> variant -> way to cut it (one of ``ways``) -> what came."""
    found: dict[str, Any] = {}
    for name, (end, start) in watched(engine).items():
        mine = found[name] = {}
        for variant, pieces, finish in variants(start, end):
            tools = "hermes" if variant.startswith("call") else None
            case = as_case(pieces, finish, name, tools, None if variant.startswith("started") else start)
            mine[variant] = {}
            cuts = public.cuts(case)
            for way in ways:
                try:
                    mine[variant][way] = code.stream(case, cuts[way]).seen()
                except Exception as error:
                    mine[variant][way] = {"raised": f"{type(error).__name__}: {error}"[:200]}
    return found


def main(out: str) -> None:
    from engine_overlay import engines, importer

    engine = engines.installed()[0]
    code = ServingCode(engine.name)
    ledger = importer.overlay.ledgers[engine.name]
    for name in sorted(ledger.wanted_modules()):
        __import__(name)
    seen: dict[str, Any] = {"states": {i: ledger.state(i)[0] for i in PATCHES}}
    seen["on"] = answers(engine, code, ("1", "2", "3", "all"))
    ledger.undo_all()
    seen["off"] = answers(engine, code, ("1",))
    Path(out).write_text(json.dumps(seen, ensure_ascii=False, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1])
