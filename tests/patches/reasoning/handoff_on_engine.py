"""What a client gets when the end of reasoning is spelled, for each reasoning parser that looks at ids.

    python -m tests.patches.reasoning.handoff_on_engine FILE

Runs in a process of one release that was started with the overlay, goes through that release's chat serving
code, and writes what came as JSON; test_reasoning_handoff judges it. "on" is asked first, then the patches are
undone for "off".
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from engine_overlay.verify import cases as public
from engine_overlay.verify.serving_code import ServingCode
from engine_overlay.verify.tokens import DEFAULT_SPECIAL, CaseTokenizer
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
_ENDS = {"atomic": ["</think>"], "spelled": ["</", "think", ">"]}
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


def responses(engine: Any, end: list[str]) -> dict[str, str]:
    """The texts of a deepseek_r1 answer in the events of ``/v1/responses``, one token per delta."""
    module = engine.module("entrypoints.openai.responses.serving")
    outputs = engine.module("outputs")
    request_class = engine.module("entrypoints.openai.responses.protocol").ResponsesRequest
    manager = engine.module("parser").ParserManager
    pieces = ["Hm", ".", *end, "\n\n", "Four", "."]
    tokenizer = CaseTokenizer(DEFAULT_SPECIAL, _SPECIAL, [piece.encode() for piece in pieces])
    request = request_class(model="model", input="hi")
    parser = manager.get_parser(reasoning_parser_name="deepseek_r1", model_name="model")
    bare = {"__init__": lambda self: None, "__getattr__": lambda self, name: None}
    serving = type("Serving", (module.OpenAIServingResponses,), bare)()
    serving.parser = parser

    async def contexts() -> Any:
        context = module.SimpleContext()
        if hasattr(context, "response_parser"):
            context.response_parser = parser(tokenizer)
        for n, piece in enumerate(pieces):
            completion = outputs.CompletionOutput(
                index=0,
                text=piece,
                token_ids=[tokenizer.id_of(piece.encode())],
                cumulative_logprob=None,
                logprobs=None,
                finish_reason="length" if n == len(pieces) - 1 else None,
            )
            context.last_output = outputs.RequestOutput(
                request_id="r",
                prompt=None,
                prompt_token_ids=[tokenizer.id_of(b"<think>")],
                prompt_logprobs=None,
                outputs=[completion],
                finished=completion.finish_reason is not None,
            )
            yield context

    async def run() -> dict[str, str]:
        texts: dict[str, str] = {}
        events = serving._process_simple_streaming_events(
            request, None, contexts(), module.SimpleContext(), "model", tokenizer, None, 0, lambda event: event
        )
        async for event in events:
            if event.type.endswith("text.delta"):
                texts[event.type] = texts.get(event.type, "") + event.delta
        return texts

    return asyncio.run(run())


def main(out: str) -> None:
    from engine_overlay import engines, importer

    engine = engines.installed()[0]
    code = ServingCode(engine.name)
    ledger = importer.overlay.ledgers[engine.name]
    for name in sorted(ledger.wanted_modules()):
        __import__(name)
    if ledger.state("own_parser")[0] == "applied":
        # Stock names as well are to be served by the engine's own parsers here, which these patches stand in front of.
        ledger.undo("own_parser")
    seen: dict[str, Any] = {"states": {i: ledger.state(i)[0] for i in PATCHES}}
    seen["on"] = answers(engine, code, ("1", "2", "3", "all"))
    seen["responses"] = {how: responses(engine, end) for how, end in _ENDS.items()}
    ledger.undo_all()
    seen["off"] = answers(engine, code, ("1",))
    Path(out).write_text(json.dumps(seen, ensure_ascii=False, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1])
