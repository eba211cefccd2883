"""The questions themselves: no tag where none is meant, and a user's own prompts."""

from __future__ import annotations

import json
import random

import pytest

from engine_overlay.canary.detectors.arguments import misfits
from engine_overlay.canary.detectors.tags import TAGS
from engine_overlay.canary.questions import CHECKS, TYPES, of_check, own, tool, words
from engine_overlay.text.schema import Schema


def test_every_check_has_questions_and_only_those_about_tags_name_one() -> None:
    for check in CHECKS:
        asked = of_check(check) if check not in ("parallel", "own") else words(8, random.Random(1))
        assert asked, check
        for question in asked:
            assert any(tag in question.text for tag in TAGS.whole) == question.about_tags, question


@pytest.mark.parametrize("kind", TYPES)
def test_the_value_that_is_asked_for_fits_its_tool(kind: str) -> None:
    parameters = tool(kind)["function"]["parameters"]
    whole = Schema(parameters)
    assert list(misfits({"value": TYPES[kind][1]}, whole, whole.shape(parameters), "")) == []


def test_types_and_choices_are_asked_streaming_and_full() -> None:
    for check in ("types", "choice", "budget", "quotes"):
        ways = {(question.name, question.streamed) for question in of_check(check)}
        assert {name for name, streamed in ways if streamed} == {name for name, streamed in ways if not streamed}


def test_words_are_all_different() -> None:
    found = {question.word for question in words(200, random.Random(1))}
    assert len(found) == 200
    assert not any(one != other and one in other for one in found for other in found)


def test_own_prompts() -> None:
    parts = [{"role": "user", "content": [{"type": "text", "text": "Go"}]}]
    lines = [
        "What is bread?", "", '{"prompt": "Hi", "temperature": 0.2, "stream": false}',
        json.dumps({"messages": parts, "tools": [tool("array")]}),
    ]  # fmt: skip
    plain, told, called = own("\n".join(lines), "mine.txt")
    assert plain.messages[0]["content"] == "What is bread?" and plain.streamed
    assert told.fields == {"temperature": 0.2} and not told.streamed
    assert list(called.declared) == ["record_array"]
    assert [q.name for q in (plain, told, called)] == ["line 1", "line 3", "line 4"]
    assert all(question.about_tags for question in (plain, told, called))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "has no prompt in it"),
        ("\n\n", "has no prompt in it"),
        ('{"prompt": "x"', "line 1 of f begins as JSON"),
        ('fine\n{"temperature": 1}', "line 2 of f has no prompt"),
        ('{"messages": "x"}', "line 1 of f has no prompt"),
        ('{"messages": [{"role": "user"}]}', "line 1 of f has no prompt"),
        ('{"prompt": "x", "tools": {}}', "line 1 of f has no prompt"),
        ('{"prompt": 7}', "line 1 of f has no prompt"),
    ],
)
def test_own_prompts_that_cannot_be_used(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        own(text, "f")
