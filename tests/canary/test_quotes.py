"""A text cut at a quoted tag is found; quotes that are whole, or odd for another reason, are none."""

from __future__ import annotations

import pytest

from tests.canary.made import ABOUT, answer, kinds


@pytest.mark.parametrize(
    ("reasoning", "content"),
    [
        ("The tag `", "` closes it.</think>\n\nUse it."),
        ('They ask of "', '", which ends a thought.'),
        ("Hm.", "A parser needs `"),
    ],
)
def test_cut_in_a_quote(reasoning: str, content: str) -> None:
    assert kinds(ABOUT, answer(content, reasoning))[:1] == ["cut at a quoted tag"]


@pytest.mark.parametrize(
    ("reasoning", "content"),
    [
        ("I use `x`", "`x` is it."),
        ("It is 5' 3\"", "Five feet."),
        ("Say \"yes\"", "\"Yes\", I say."),
        ("Code.", "```\nx\n```"),
        ("```", "```python\nx\n```"),
        ("Hm.", "Press `Enter`"),
        ("Hm.", "An odd one: 3` is three minutes"),
    ],
)
def test_quotes_that_are_none(reasoning: str, content: str) -> None:
    assert kinds(ABOUT, answer(content, reasoning)) == []


def test_an_answer_that_a_limit_cut_is_none() -> None:
    assert kinds(ABOUT, answer("A parser needs `", "Hm.", finish="length")) == []
