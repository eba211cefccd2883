"""JSON calls in tags through the engine that this process can import: every cut, held back text, others' classes.

    python -m tests.patches.tools.tags_on_engine FILE

Writes JSON: what the probes of the three patches say with them and undone, how many answers were asked and which were
wrong, and what is left to the stock parsers. test_hermes_by_text and its neighbours judge it.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from engine_overlay import catalog, commit, engines
from engine_overlay.verify import cases as public
from engine_overlay.verify.tokens import DEFAULT_SPECIAL, CaseTokenizer
from tests.properties.direct import Direct

PATCHES = ("hermes_by_text", "granite4_by_text", "tool_half_serving")
TAGS = ("<tool_call>", "</tool_call>")
PAIRS = (
    ("qwen3", "hermes", TAGS),
    ("deepseek_r1", "hermes", TAGS),
    (None, "hermes", TAGS),
    (None, "longcat", ("<longcat_tool_call>", "</longcat_tool_call>")),
    (None, "granite4", TAGS),
)
HOLDBACKS = range(1, 13)
TOOLS = [
    {"name": "f", "parameters": {"type": "object", "properties": {"x": {"type": "integer"}, "y": {"type": "string"}}}},
    {"name": "ping", "parameters": {"type": "object", "properties": {}}},
]
_HEAD = ("{", '"name"', ": ", '"', "f", '"', ", ")

Expected = tuple[tuple[str, ...], str, list[dict[str, Any]]]
"""The pieces of an answer, its content, its calls."""


def answers(opener: str, closer: str) -> dict[str, Expected]:
    """What is said behind the reasoning."""

    def one(*inside: str) -> tuple[str, ...]:
        return (opener, "\n", *_HEAD, '"arguments": {', *inside, "}}", "\n", closer)

    def f(**arguments: Any) -> dict[str, Any]:
        return {"name": "f", "arguments": arguments}

    sure = one('"x"', ": 1")
    mention = ("Put", " it", " into", " `", opener, "`", " tags", ",", " or", " `", closer, "`", ".")
    other = (opener, '{"name": "rm", ', '"arguments": {}}', closer)
    inside = one('"y"', ': "', "a", closer, " b", opener, '"')
    return {
        "one": (sure, "", [f(x=1)]),
        "mention": (mention, "".join(mention), []),
        "around": (("Hi", ".", "\n", *sure, "So", "."), "Hi.\nSo.", [f(x=1)]),
        "two": ((*sure, *one('"y"', ': "', "\u00e9", '\\"', '"')), "", [f(x=1), f(y='\u00e9"')]),
        "tags inside": (inside, "", [f(y=f"a{closer} b{opener}")]),
        "undeclared": (("No", ".", *other), f"No.{''.join(other)}", []),
        "arguments first": ((opener, '{"arguments": {"x": 1}, ', '"name": "f"}', closer), "", [f(x=1)]),
        "parameters": ((opener, *_HEAD, '"parameters"', ": {", '"x": 1', "}}", closer), "", [f(x=1)]),
        "no arguments": ((opener, '{"name": "ping"}', closer), "", [{"name": "ping", "arguments": {}}]),
        "no closer": (sure[:-1], "", [f(x=1)]),
        "cut off": (("Hi", opener[:5], opener[5:8]), f"Hi{opener[:8]}", []),
        "Python": ((opener, "{'name': 'f', ", "'arguments': {'x': 1, ", "'y': '2'}}", closer), "", [f(x=1, y="2")]),
        "type": (one('"x"', ": ", '"1"'), "", [f(x=1)]),
    }


def cases(reasoning: str | None, tools: str, tags: tuple[str, str]) -> Iterator[tuple[dict[str, Any], list[int]]]:
    """(case, cuts): every cut into two deltas, single tokens with held back text; the tags special and spelled."""
    spelled = {tag: (tag[0], *tag[1:].partition("_")) for tag in tags}
    for name, (pieces, content, calls) in answers(*tags).items():
        for how in ("special", "spelled"):
            if how == "spelled":
                pieces = tuple(part for piece in pieces for part in spelled.get(piece, (piece,)))
            case = {
                "id": f"{reasoning} {tools} {name} {how}",
                "reasoning_parser": reasoning,
                "tool_parser": tools,
                "tools": TOOLS,
                "prompt_pieces": ["<think>"],
                "atomic": ["<think>", "</think>", *tags],
                "token_pieces": [*(("Hm", ".", "</think>", "\n\n") if reasoning else ()), *pieces],
                "deltas": "each",
                "expect": {
                    "reasoning": "Hm." if reasoning else "",
                    "content": content,
                    "tool_calls": calls,
                    "finish_reason": "tool_calls" if calls else "stop",
                },
            }
            for cuts in public.every_cut(case).values():
                yield case, cuts
            for holdback in HOLDBACKS:
                yield {**case, "holdback": holdback}, [1] * len(case["token_pieces"])


def asked(code: Direct, pairs: tuple[Any, ...] = PAIRS) -> dict[str, Any]:
    found: dict[str, Any] = {"answers": 0, "wrong": {}, "apart": {}}
    for pair in pairs:
        for case, cuts in cases(*pair):
            found["answers"] += 1
            both = code.both(case, cuts)
            for way, answer in both.items():
                wrong = public.wrong(case, answer)
                if wrong:
                    found["wrong"].setdefault(case["id"], [way, cuts, case.get("holdback", 0), wrong])
            if both["stream"].calls != both["full"].calls:
                found["apart"].setdefault(case["id"], [both["stream"].calls, both["full"].calls])
    return found


def left(code: Direct, engine: Any) -> dict[str, Any]:
    """What the stock parser reads: requests without tools, and a class that is not the engine's."""
    module = engine.module("tool_parsers.hermes_tool_parser")
    other = type("Other", (module.Hermes2ProToolParser,), {"__module__": "somebody.else"})
    case, _ = next(cases(*PAIRS[2]))
    tokenizer = CaseTokenizer(DEFAULT_SPECIAL, case["atomic"], [b"."])
    text = '<tool_call>{"name": "rm", "arguments": {}}</tool_call> Done.'
    request = code._request(**public.request_fields(case))
    bare = code._request(**public.request_fields({**case, "tools": None}))
    return {
        "no tools": names(module.Hermes2ProToolParser(tokenizer).extract_tool_calls(text, bare)),
        "not the engine's": names(other(tokenizer, request.tools).extract_tool_calls(text, request)),
        "the engine's": names(module.Hermes2ProToolParser(tokenizer).extract_tool_calls(text, request)),
    }


def unwanted(code: Direct) -> dict[str, Any]:
    """The answers to a request that wants no call: [content, calls]."""
    case, _ = next(cases(*PAIRS[2]))
    pieces = ["Hi", " `", TAGS[0], "`", ".", "\n", *case["token_pieces"]]
    both = code.both(case | {"token_pieces": pieces, "tool_choice": "none"}, [1] * len(pieces))
    return {way: [answer.content, answer.calls] for way, answer in both.items()}


def side_by_side(code: Direct) -> list[Any]:
    """Two streams of one request that take turns, as with ``n`` = 2: [content, calls] of each."""
    case, _ = next(cases(*PAIRS[2]))
    pieces = [case["token_pieces"], ["a", " <", "tool"]]
    tokenizer = CaseTokenizer(DEFAULT_SPECIAL, case["atomic"], [p.encode() for some in pieces for p in some])
    request = code._request(**public.request_fields(case))
    made = code._parser_class(None, "hermes")
    streams = [(made(tokenizer, request.tools), some, public.Answer()) for some in pieces]
    for n in range(max(map(len, pieces))):
        for parser, some, answer in streams:
            if n < len(some):
                ids, last = [tokenizer.id_of(some[n].encode())], n == len(some) - 1
                delta = parser.parse_delta(some[n], ids, request, [], finished=last)
                answer.add(None, delta.content if delta else None)
                for call in (delta.tool_calls if delta else None) or ():
                    answer.add_call(call.index, call.function.name, call.function.arguments)
    return [[answer.content, [*(answer.calls or {}).values()]] for _, _, answer in streams]


def names(found: Any) -> list[Any]:
    return [[call.function.name for call in found.tool_calls], found.content]


def main(out: str) -> None:
    (engine,) = engines.installed()
    code = Direct(engine.name)
    known = catalog.load().entries
    result: dict[str, Any] = {"with": {i: known[i].probe(engine).outcome.value for i in PATCHES}}
    result |= {"asked": asked(code), "left": left(code, engine)}
    result |= {"none": unwanted(code), "side by side": side_by_side(code)}
    for i in PATCHES:
        commit.undo(i)
        result.setdefault("undone", {})[i] = known[i].probe(engine).outcome.value
    result["stock"] = asked(code, PAIRS[2:])
    Path(out).write_text(json.dumps(result, ensure_ascii=False, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1])
