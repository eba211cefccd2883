"""A call as one JSON object: its name and its arguments, in whatever order and however it is cut."""

from __future__ import annotations

import json

import pytest

from engine_overlay.text.json_call import JsonCall
from engine_overlay.text.schema import Schema

SCHEMA = Schema({"type": "object", "properties": {"n": {"type": "integer"}, "s": {"type": "string"}}})

CALLS = {
    "as the template writes it": ('\n{"name": "f", "arguments": {"s": "}"}}\n', "f", {"s": "}"}, "\n"),
    "arguments first": ('{"arguments": {"n": 1}, "name": "f"}', "f", {"n": 1}, ""),
    "no arguments": ('{"name": "f"}', "f", {}, ""),
    "null for arguments": ('{"name": "f", "arguments": null} tail', "f", {}, " tail"),
    "arguments in a string": ('{"name": "f", "arguments": "{\\"n\\": 1}"}', "f", {"n": 1}, ""),
    "parameters": ('{"name": "f", "parameters": {"n": 1}}', "f", {"n": 1}, ""),
    "other members": ('{"id": [1, {"name": "g"}], "name": "f", "arguments": {"n": 1}, "x": {}}', "f", {"n": 1}, ""),
    "a name inside the arguments": ('{"name": "f", "arguments": {"s": "\\"name\\": \\"g\\""}}', "f", None, ""),
    "a type mended": ('{"name": "f", "arguments": {"n": "7", "s": 5}}', "f", {"n": 7, "s": "5"}, ""),
    "cut off in the arguments": ('{"name": "f", "arguments": {"s": "x', "f", {"s": "x"}, ""),
    "cut off behind the name": ('{"name": "f", "argu', "f", {}, ""),
    "no name": ('{"arguments": {"n": 1}}', None, None, ""),
    "an escaped name": ('{"name": "\\u0066", "arguments": {}}', "f", {}, ""),
}


@pytest.mark.parametrize("case", CALLS)
def test_a_call_is_read_however_it_is_cut(case):
    text, name, arguments, rest = CALLS[case]
    for size in (1, 2, 5, len(text)):
        call = JsonCall(lambda _: SCHEMA)
        said = "".join(call.feed(text[at : at + size]) for at in range(0, len(text), size)) + call.finish()
        assert (call.name, call.rest) == (name, rest)
        if name is not None:
            got = json.loads(said)
            assert arguments is None or json.dumps(got) == json.dumps(arguments)


def test_arguments_come_while_they_are_written():
    call = JsonCall(lambda _: None)
    assert call.feed('{"name": "f", "arguments": {"s": "on') == '{"s": "on'
    assert call.feed("e") == "e"
    assert call.in_string
