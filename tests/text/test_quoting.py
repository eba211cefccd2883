"""A spelled marker counts unless it is a mention: quoted, in code, or in the middle of a sentence."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine_overlay.text.quoting import CONTEXT, in_json_string, is_example, is_mentioned, is_quoted

REAL = [
    ("I have it.", "\n\nFour."),
    ("I have it.\n", "Four."),
    ("", "Four."),
    ("I'll answer.", "\n\n'Tis four."),
    ("I'll answer. ", "four"),
    ("So 4. ", " Four."),
    ("It is done ", " Four."),
    ("It is done ", "\n\nfour"),
    ("It is done", None),
    ('He said "yes".', '\n\n"No."'),
    ('the tag is "', "\nDone."),
    ("the tag is `", "\nDone."),
    ("the tag is `", None),
    ("Code:\n```python\nx = 1\n```\nDone.", "\n\nHere."),
    ("Code:\n```\nx = 1\n```\nDone.", "\n\nHere."),
    ("One `a` and `b`.", "\n\nHere."),
    ("A ``` on a line.", "\n\nHere."),
]

MENTIONS = [
    ("The tag `", "` ends thinking"),
    ('The tag "', '" ends thinking'),
    ("The tag '", "' ends thinking"),
    ("The tag \u201c", "\u201d ends thinking"),
    ("Use `<think>x", "` here"),
    ("Use `<think>x", " y` here"),
    ('It prints "<think>x', '" here'),
    ("Use ``", "`` here"),
    ("Template:\n```\n<think>", "\n```"),
    ("Template:\n```jinja\n{% if x %}", "{% endif %}"),
    ("> quote\n> ```text\n> ", "\n> ```"),
    ("If I print ", " then the UI folds."),
    ("It writes the marker, ", " and more."),
]


@pytest.mark.parametrize(("before", "after"), REAL)
def test_real(before: str, after: str | None) -> None:
    assert is_quoted(before, after) is False


@pytest.mark.parametrize(("before", "after"), MENTIONS)
def test_mention(before: str, after: str) -> None:
    assert is_quoted(before, after) is True


@pytest.mark.parametrize(("before", "after"), REAL + MENTIONS)
def test_more_text_only_settles_what_was_open(before: str, after: str | None) -> None:
    """What is answered from less text is what is answered from all of it, and two characters are enough."""
    if after is None:
        return
    answer = is_quoted(before, after)
    assert answer is not None
    for seen in range(min(2, len(after))):
        early = is_quoted(before, after[:seen])
        assert early in (None, answer)
    assert is_quoted(before, after[:2]) is answer


def test_a_plain_end_needs_no_look_ahead() -> None:
    assert is_quoted("I have it.", "") is False
    assert is_quoted("I have it.\n", "") is False


def test_a_bare_fence_says_nothing_when_the_front_is_missing() -> None:
    text = "x" * CONTEXT + "\n```\nDone."
    assert is_quoted(text, "\n\nHere.") is False
    assert is_quoted(text, "\n\nHere.", whole=True) is True
    assert is_quoted("x" * CONTEXT + "\n```python\ny = 1", "\n", whole=False) is True


PROSE = st.text(alphabet="ab \n`\"'.,<>\u201c\u201d", max_size=40)


@given(PROSE, PROSE)
def test_never_changes_its_mind(before: str, after: str) -> None:
    answers = [is_quoted(before, after[:n]) for n in range(len(after) + 1)]
    settled = [a for a in answers if a is not None]
    assert len(set(settled)) <= 1
    assert all(a is not None for a in answers[2:])
    assert is_quoted(before, None) is not None


@pytest.mark.parametrize(
    ("before", "after", "final", "mentioned"),
    [
        ("Use ", "", False, None),
        ("Use ", "", True, True),
        ("Looking.\n", "", True, False),
        ("Tags: ", ", and more", False, True),
        ("", " opens a call", False, True),
        ("", " ", False, None),
        ("The tag `", "` opens", False, True),
        ("Checking. ", "\n<function", True, False),
        ("A ", "garbage</tool_call> B", True, False),
    ],
)
def test_an_opener_is_mentioned_when_the_sentence_goes_on(before, after, final, mentioned):
    assert is_mentioned(before, after, whole=True, final=final) is mentioned


@pytest.mark.parametrize(
    ("before", "example"),
    [("Like this:\n```xml\n", True), ("```\nx\n```\n", False), ("Inline `", True), ("Plain ", False)],
)
def test_a_call_in_code_is_an_example(before, example):
    assert is_example(before, whole=True) is example


@pytest.mark.parametrize(
    ("before", "inside"),
    [
        ('{"a": "', True),
        ('{"a": "x", "b": "the ', True),
        ('\n["a \\" ', True),
        ('["a \\\\" ', False),
        ('{"a": 1}', False),
        ('{"a": "x"} and ', False),
        ('He said "', False),
        ("", False),
    ],
)
def test_a_tag_in_a_string_of_a_json_answer(before: str, inside: bool) -> None:
    assert in_json_string(before, whole=True) is inside
    assert in_json_string(before, whole=False) is False
