"""The JSON that guided decoding makes of a tool choice, however it is cut."""

from __future__ import annotations

import json

import pytest

from engine_overlay.text.guided import GuidedCalls

NAMES = frozenset({"f", "g"})

REQUIRED = {
    "one": ('[{"name": "f", "parameters": {"a": 1}}]', [("f", {"a": 1})], ""),
    "two": (
        '[{"name": "f", "parameters": {"a": "],["}}, {"name": "g", "parameters": {}}]',
        [("f", {"a": "],["}), ("g", {})],
        "",
    ),
    "without the list": ('{"name": "f", "arguments": {}}', [("f", {})], ""),
    "white space": (' [\n {"name": "f",\n "parameters": {"a": 1}}\n]\n', [("f", {"a": 1})], ""),
    "cut off": ('[{"name": "f", "parameters": {"a": "x', [("f", {"a": "x"})], ""),
    "an undeclared tool": ('[{"name": "h", "parameters": {"a": 1}}]', [], '{"name": "h", "parameters": {"a": 1}}'),
    "text behind": ('[{"name": "f", "parameters": {}}] That is all.', [("f", {})], "That is all."),
    "an empty list": ("[]", [], ""),
}


def read(calls: GuidedCalls, text: str, size: int) -> tuple[list[tuple[str, object]], str]:
    got: list[list[str]] = []
    said = ""
    pieces = [text[at : at + size] for at in range(0, len(text), size)]
    for n, piece in enumerate(pieces):
        for new in calls.feed(piece, last=n == len(pieces) - 1):
            if new.name is not None:
                got.append([new.name, ""])
            elif new.arguments:
                got[-1][1] += new.arguments
            said += new.text
    return [(name, json.loads(arguments)) for name, arguments in got], said


@pytest.mark.parametrize("case", REQUIRED)
@pytest.mark.parametrize("size", [1, 3, 7, 1000])
def test_required(case, size):
    text, calls, said = REQUIRED[case]
    assert read(GuidedCalls(NAMES, None, lambda _: None), text, size) == (calls, said)


@pytest.mark.parametrize("size", [1, 3, 1000])
@pytest.mark.parametrize("text", ['{"a": {"b": [1]}}', '{"name": "x", "parameters": {}}', '{"a": "cut'])
def test_a_named_tool_gets_the_bare_object(text, size):
    calls, said = read(GuidedCalls(NAMES, "g", lambda _: None), text, size)
    assert [name for name, _ in calls] == ["g"] and said == ""
    assert calls[0][1] == json.loads(text if text.endswith("}") else text + '"}')
