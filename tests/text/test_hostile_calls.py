"""Calls that are nested deeply, repeated or broken, through the own parser: no exception, and a stream as the whole."""

from __future__ import annotations

import pytest

from bench import hostile
from engine_overlay.text.formats import STOCK_CALLS, STOCK_REASONING
from tests.text.own import Run

OWN = [
    name
    for name, shape in hostile.SHAPES.items()
    if shape.tools in STOCK_CALLS and (shape.reasoning is None or shape.reasoning in STOCK_REASONING)
]
PLACES = ("content", "name", "arguments", "value", "behind")
NESTED = {"[": "]", '{"a":': "}", "<a>": "</a>", '[{"a":': "}]"}


def case(shape: hostile.Shape, tokens: list[hostile.Token]) -> dict:
    return {
        "tool_parser": shape.tools,
        "reasoning_parser": shape.reasoning,
        "tools": [hostile.TOOL],
        "prompt_pieces": ["<|im_start|>", *filter(None, [shape.start]), "\n"],
        "atomic": list(shape.markers),
        "text": "".join(token.text for token in tokens),
        "token_pieces": [token.text for token in tokens],
        "deltas": "each",
    }


def said(answer) -> tuple:
    return answer.reasoning.strip(), answer.content.strip(), answer.calls, answer.finish_reason


def same_in_all_ways(shape, place, text, widths):
    tokens = hostile.answer(shape, place, tuple(hostile.cut(text)), len(text))
    run = Run(case(shape, tokens))
    count, full = len(tokens), said(run.full())
    for width in widths:
        cuts = [min(width, count - at) for at in range(0, count, width)]
        assert said(run.stream(cuts)) == full, (place, text[:20], width)
    return full


def test_the_formats_are_there():
    assert {"qwen3", "hermes", "glm47", "kimi_k2", "minimax_m2", "deepseek_v4", "deepseek_v32"} <= set(OWN)


@pytest.mark.parametrize("opening", NESTED)
@pytest.mark.parametrize("name", OWN)
def test_no_nesting_breaks_an_answer(name, opening):
    shape = hostile.SHAPES[name]
    for place in PLACES:
        same_in_all_ways(shape, place, opening * 990 + "1" + NESTED[opening] * 990, (10**6, 53))
    same_in_all_ways(shape, "value", opening * 5_000, (10**6,))


@pytest.mark.parametrize("name", OWN)
def test_junk_in_a_call_breaks_no_answer(name):
    shape = hostile.SHAPES[name]
    for place in PLACES:
        for junk in ("junk ", "'\"", '"x" ', "\\u0", "<" * 7 + " ", *shape.ends):
            same_in_all_ways(shape, place, junk * (1_000 // len(junk)), (10**6, 53))


@pytest.mark.parametrize("name", OWN)
def test_a_long_value_arrives_whole(name):
    shape = hostile.SHAPES[name]
    value = "[" * 990 + "x" + "]" * 990
    _, _, calls, _ = same_in_all_ways(shape, "value", value, (10**6, 1))
    assert value in calls[0][1]
