"""Repetition without end is found; lists, tables, counting and answers that end by themselves are none."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine_overlay.canary.detectors.loops import repetition
from tests.canary.made import PLAIN, answer, asked, kinds

LOOPS = {
    "Wait, no. ": 40,
    "!": 500,
    "I should think about it once more, and then once more.\n": 10,
    "ab": 250,
    "\u54c8": 500,
    "- Let me check the first of these.\n- Let me check the other of these.\n": 8,
}


@pytest.mark.parametrize("unit", LOOPS)
@pytest.mark.parametrize("field", ["content", "reasoning"])
def test_a_unit_again_and_again_until_the_limit(unit: str, field: str) -> None:
    text = "First of all, something else. " + unit * LOOPS[unit] + unit[: len(unit) // 2]
    assert kinds(PLAIN, answer(**{field: text}, finish="length")) == ["loop"]


def test_a_loop_in_arguments() -> None:
    from engine_overlay.canary.questions import typed

    given_answer = answer(calls=(("record_string", '{"value": "' + "so it is, " * 50),), finish="length")
    assert kinds(typed("string"), given_answer) == ["loop"]


def test_a_sentence_between_other_words() -> None:
    text = "".join(f"Let me think about the seahorse again, and then about it once more. {n * n}?\n" for n in range(60))
    assert kinds(PLAIN, answer(reasoning=text, finish="length")) == ["loop"]


@pytest.mark.parametrize(("unit", "kind"), [("<think>\n</think>\n", "empty thoughts"), ("\n", "blank deltas")])
def test_nothing_again_and_again(unit: str, kind: str) -> None:
    assert kinds(PLAIN, answer("Hm.\n" + unit * 450, reasoning="Hm.", finish="length")) == [kind]


@pytest.mark.parametrize(
    "text",
    [
        "\n".join(f"{n}. item number {n * n}" for n in range(200)),
        "| a | b |\n| - | - |\n" + "\n".join(f"| {n} | {n * 3} |" for n in range(150)),
        "Chapter one\n" + "-" * 120,
        " ".join(str(n) for n in range(800)),
        "x = [" + "0, " * 40,
        "".join(f"def f{n}(x):\n    return x + {n}\n\n\n" for n in range(60)),
        "row, row, row your boat, " * 4,
    ],
)
def test_what_only_looks_alike_is_none(text: str) -> None:
    assert kinds(PLAIN, answer(text, reasoning="Hm.", finish="length")) == []


@pytest.mark.parametrize("unit", LOOPS)
def test_an_answer_that_ends_by_itself_is_none(unit: str) -> None:
    assert kinds(PLAIN, answer(unit * LOOPS[unit], reasoning="Hm.")) == []


def test_a_repetition_that_was_left_behind_is_none() -> None:
    text = "no " * 100 + "But that is enough of it, so I write about bread and how it is made in the south of France."
    assert kinds(PLAIN, answer(text, reasoning="Hm.", finish="length")) == []


@given(st.text(min_size=1, max_size=30), st.integers(0, 29))
@settings(max_examples=200, deadline=None)
def test_every_unit_is_seen_wherever_it_is_cut(unit: str, cut: int) -> None:
    text = "Before it. " + unit * (420 // len(unit) + 7) + unit[: cut % len(unit)]
    found = repetition(text)
    assert found and len(unit) % len(found[0]) == 0


@given(st.lists(st.integers(0, 10**6), min_size=60, max_size=200, unique=True))
@settings(max_examples=100, deadline=None)
def test_text_that_does_not_repeat_is_never_one(numbers: list[int]) -> None:
    assert repetition(" and then ".join(map(str, numbers))) is None


def test_tools_do_not_make_silence_a_loop() -> None:
    assert kinds(asked(tools=({"type": "function", "function": {"name": "f"}},)), answer("4.", reasoning="Hm.")) == []
