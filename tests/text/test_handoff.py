"""Which parsers are stood in front of, and how messages become one."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from engine_overlay.text import handoff
from engine_overlay.text.spelled_end import Marker
from tests.patches.reasoning.by_ids import END, START, Base, ById, Call, Function, Message, Words

MARKS = (Marker("</think>", END), Marker("<think>", START))


def test_markers_of_a_parser_that_keeps_their_ids() -> None:
    assert handoff.markers(ById(Words())) == MARKS


def test_markers_of_a_parser_that_only_names_them() -> None:
    class Named(Base):
        reasoning_start_str, reasoning_end_str = "<think>", "</think>"

    assert handoff.markers(Named(Words())) == MARKS


def test_markers_of_the_parser_inside() -> None:
    class Outer(Base):
        def __init__(self, tokenizer: Words) -> None:
            super().__init__(tokenizer)
            self._parser = ById(tokenizer)

    assert handoff.markers(Outer(Words())) == MARKS


def test_the_text_of_an_end_that_is_only_an_id() -> None:
    class OnlyId(Base):
        end_token_id = END

    assert handoff.markers(OnlyId(Words())) == (MARKS[0], None)


@pytest.mark.parametrize(
    "attributes",
    [
        {},
        {"reasoning_end_str": None, "reasoning_start_str": None},
        {"reasoning_end_str": "\n</think>\n<answer>\n"},
        {"end_token": "</think>", "_identity_parser": Base(Words())},
        {"end_token": "</think>", "think_end_rest_token_ids": [7, 8]},
        {"end_token": "</think>", "_end_token_ids": (7, 8)},
        {"end_token": "</think>", "buffer": SimpleNamespace(think_end="</think>")},
    ],
)
def test_parsers_that_are_left_alone(attributes: dict) -> None:
    assert handoff.markers(type("Alone", (Base,), attributes)(Words())) is None


def test_merge_joins_texts_and_arguments_by_index() -> None:
    merged = handoff.merge(
        [
            None,
            Message(reasoning="So", tool_calls=[]),
            Message(reasoning="."),
            Message(content="Four"),
            Message(tool_calls=[Call(0, "a", "function", Function("f", "{"))]),
            Message(tool_calls=[Call(1, "b", "function", Function("g", "{}")), Call(0, function=Function(None, "}"))]),
        ]
    )
    assert (merged.reasoning, merged.content) == ("So.", "Four")
    assert merged.tool_calls == [
        Call(0, "a", "function", Function("f", "{}")),
        Call(1, "b", "function", Function("g", "{}")),
    ]


def test_merge_of_nothing_is_nothing() -> None:
    assert handoff.merge([None, None]) is None
    assert handoff.merge([]) is None


def test_merge_leaves_unset_what_nobody_set() -> None:
    merged = handoff.merge([Message(content="a"), Message(content="b")])
    assert merged == Message(content="ab")
