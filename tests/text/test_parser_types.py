"""Arguments of every type in every format of the own parser, streaming and full."""

from __future__ import annotations

import json

import pytest

from engine_overlay.text.formats import CALLS, compose
from engine_overlay.text.parser import TextParser
from engine_overlay.text.vocab import Vocab
from engine_overlay.verify.cases import Answer
from tests.text import own
from tests.text.schema_cases import CASES, DEFS


def xml(values):
    body = "".join(f"<parameter={name}>\n{raw}\n</parameter>\n" for name, raw, _ in values)
    return f"<tool_call>\n<function=f>\n{body}</function>\n</tool_call>"


def glm(values):
    body = "".join(f"<arg_key>{name}</arg_key>\n<arg_value>{raw}</arg_value>\n" for name, raw, _ in values)
    return f"<tool_call>f\n{body}</tool_call>"


def minimax(values):
    body = "".join(f'<parameter name="{name}">{raw}</parameter>\n' for name, raw, _ in values)
    return f'<minimax:tool_call>\n<invoke name="f">\n{body}</invoke>\n</minimax:tool_call>'


def dsml(values):
    body = "".join(
        f'<｜DSML｜parameter name="{name}" string="{str(isinstance(wanted, str)).lower()}">{raw}</｜DSML｜parameter>\n'
        for name, raw, wanted in values
    )
    return f'<｜DSML｜tool_calls>\n<｜DSML｜invoke name="f">\n{body}</｜DSML｜invoke>\n</｜DSML｜tool_calls>'


def hermes(values):
    arguments = {name: value for name, _, value in values}
    return f"<tool_call>\n{json.dumps({'name': 'f', 'arguments': arguments})}\n</tool_call>"


def longcat(values):
    return hermes(values).replace("tool_call>", "longcat_tool_call>")


def kimi(values):
    arguments = json.dumps({name: value for name, _, value in values})
    call = f"<|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{arguments}<|tool_call_end|>"
    return f"<|tool_calls_section_begin|>{call}<|tool_calls_section_end|>"


WRITERS = {
    "qwen3_xml": xml,
    "hermes": hermes,
    "longcat": longcat,
    "glm": glm,
    "kimi_k2": kimi,
    "minimax_m2": minimax,
}
WRITERS |= {"deepseek_v32": dsml, "deepseek_v4": dsml}


def test_every_format_is_written() -> None:
    assert set(WRITERS) == set(CALLS)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("name", WRITERS)
def test_an_argument_has_the_type_of_its_schema(name: str, case: str) -> None:
    """Beside two others, so that what is held back does not hide what follows."""
    node, raw, wanted = CASES[case]
    properties = {"first": {"type": "string"}, "p": node, "last": {"type": "integer"}}
    tool = {"name": "f", "parameters": {"type": "object", "properties": properties, "$defs": DEFS}}
    text = WRITERS[name]([("first", "a < b", "a < b"), ("p", raw, wanted), ("last", "7", 7)])
    form = compose(None, name)
    seen = set()
    for size in (1, 3, 7, len(text)):
        parser = TextParser(form, Vocab(form, dict, lambda ids: ""), tools=[{"type": "function", "function": tool}])
        answer = Answer()
        for at in range(0, len(text), size):
            for event in parser.feed(text[at : at + size], [], last=at + size >= len(text)):
                own.add(answer, event)
        ((called, arguments),) = answer.calls.values()
        assert called == "f" and answer.content == ""
        seen.add(arguments)
    assert len(seen) == 1
    got = json.loads(seen.pop())
    # GLM and MiniMax write values without lines of their own, where white space around them is the model's.
    expected = {"first": "a < b", "p": wanted, "last": 7}
    assert json.dumps(got) == json.dumps(expected)
