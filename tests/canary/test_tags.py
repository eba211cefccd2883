"""Tags that leaked are found; tags that are quoted, shown in code or talked about are none."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.canary import healthy
from tests.canary.made import ABOUT, INTEGER, PLAIN, answer, asked, kinds
from tests.proxy.test_edges import HEALTHY, STRAY

CALL = healthy.call("record_integer", "7")


@pytest.mark.parametrize("text", [text for text, _ in STRAY if text.strip("</think>\n")])
def test_what_the_filter_takes_off_is_found(text: str) -> None:
    assert set(kinds(PLAIN, answer(text, reasoning="Hm."))) & {"tag", "thoughts in content"}


@pytest.mark.parametrize("text", HEALTHY)
def test_what_the_filter_keeps_is_no_finding_where_tags_may_be_named(text: str) -> None:
    assert kinds(ABOUT, answer(text)) == []


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        ("4 it is.\n</think>\n\nThe answer is 4.", "thoughts in content"),
        ("two and two </think> is four", "thoughts in content"),
        ("It is 4.<|im_end|>", "tag"),
        ("<\uff5cend\u2581of\u2581sentence\uff5c>It is 4.", "tag"),
        ("It is\n<tool_call>\n4.", "tag"),
        ("4.\n</function>\n</tool_call>", "tag"),
        ("<think>\nIt is 4", ""),
    ],
)
def test_a_tag_in_an_answer_to_a_question_that_is_not_about_tags(content: str, kind: str) -> None:
    assert kinds(PLAIN, answer(content)) == ([kind] if kind else [])


@pytest.mark.parametrize(
    "content",
    [
        "`</think>` ends it.",
        'Say "</think>" to end it.',
        "```\n</think>\n```",
        "```python\nx = '</think>'\n```\n",
        "~~~\n<tool_call>\n{}\n</tool_call>\n~~~",
        "It writes <think>maybe</think> first",
        "x < y, y > z, a </ b",
        'An element: <function name="f">\nx\n</function>',
        "<thinking> is not a tag of mine",
    ],
)
def test_code_quotes_and_examples_are_no_findings(content: str) -> None:
    for question in (PLAIN, ABOUT):
        assert kinds(question, answer(content, reasoning="Hm.")) == []


def test_a_question_may_name_a_tag_itself() -> None:
    question = asked(about_tags=True)
    object.__setattr__(question, "messages", ({"role": "user", "content": "End with </think>"},))
    assert kinds(question, answer("Well.\n</think>", reasoning="Hm.")) == []


@pytest.mark.parametrize(
    ("said", "kind"),
    [
        ({"content": CALL}, "call as text"),
        ({"content": '<tool_call>\n{"name": "record_integer", "arguments": {}}'}, "call as text"),
        ({"content": "<|tool_call_begin|>functions.record_integer:0"}, "call as text"),
        ({"reasoning": f"I call.</think>\n{CALL}"}, "call in reasoning"),
        ({"reasoning": f"I call.\n{CALL}", "calls": (("record_integer", '{"value": 7}'),)}, ""),
        ({"content": f"```\n{CALL}\n```"}, ""),
        ({"content": "I would write `<tool_call>` and stop."}, ""),
        ({"content": '<tool_call>\n{"name": "other_tool"}\n</tool_call>'}, ""),
        ({"calls": (("record_integer", '{"value": 7}'),), "reasoning": "I call.</think>"}, "tag in reasoning"),
    ],
)
def test_calls_outside_of_tool_calls(said: dict, kind: str) -> None:
    found = kinds(INTEGER, answer(**said))
    assert (kind in found) if kind else found == []


@pytest.mark.parametrize(
    ("value", "found"),
    [
        ("Rome</parameter>", True),
        ("Rome\n</parameter>\n</function>", True),
        ("<parameter=value>Rome", True),
        ("Rome", False),
        ("a </b> and <i>", False),
        ("use </parameter> to close it", False),
    ],
)
def test_tags_in_a_value(value: str, found: bool) -> None:
    import json

    from engine_overlay.canary.questions import typed

    given_answer = answer(calls=(("record_string", json.dumps({"value": value})),), reasoning="Hm.")
    assert kinds(typed("string"), given_answer) == (["tag in arguments"] if found else [])


WORDS = ["the", "think", "call", "tool", "function", "a < b", "x > y", "</b>", "<p>", "link>", "1.", "\n", "\n\n", "- ",
         "'s", "**", ".", ", ", "\u7b54\u6848", "`x`", "<br>", "</div>"]  # fmt: skip


@settings(max_examples=300, deadline=None)
@given(st.lists(st.sampled_from(WORDS), max_size=40), st.sampled_from(["stop", "length"]))
def test_prose_without_tags_is_never_a_finding(words: list[str], finish: str) -> None:
    text = "It is so: " + " ".join(words) + " and that is all"
    assert kinds(PLAIN, answer(text, reasoning=text, finish=finish)) == []


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.sampled_from(["so", "it", "is", "said.", "then", "\n"]), max_size=12),
    st.lists(st.sampled_from(["and", "more", "of it.", "\n"]), max_size=12),
    st.sampled_from(["</think>", "<think>", "<tool_call>", "</tool_call>", "</function>"]),
    st.sampled_from(["`{}`", '"{}"', "\n```\n{}\n```\n", "``{}``"]),
)
def test_a_marked_mention_is_never_a_finding(before: list[str], after: list[str], tag: str, mark: str) -> None:
    text = "Well, " + " ".join(before) + " " + mark.format(tag) + " " + " ".join(after) + " in the end."
    for question in (PLAIN, ABOUT):
        assert kinds(question, answer(text, reasoning="They ask for it. " + text)) == []
