"""What is a stray tag at the edge of a text and what is not; the same however the text is cut."""

from __future__ import annotations

import json
import random
import time
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from engine_overlay.proxy.edges import MAX_RUN, Edges, End, clean
from engine_overlay.proxy.tags import DEFAULT, Tags
from tests.proxy.streams import cut

STRAY = [
    ("</think>\n\nHello", "\n\nHello"),
    ("hink>\n\nHello", "\n\nHello"),
    ("ink>The answer", "The answer"),
    ("call>Hello", "Hello"),
    ("\n</think>\n</think>\nHi", "\n\n\nHi"),
    ("<think>\n\n</think>\n\nHello", "\n\n\n\nHello"),
    ("<tool_call>Hello there", "Hello there"),
    ("<tool_call></tool_call>Hello there", "Hello there"),
    ("The answer is 42.</think>", "The answer is 42."),
    ("The answer is 42</think>", "The answer is 42"),
    ("The answer is 42.\n</think>\n", "The answer is 42.\n\n"),
    ("The answer is 42. </think>", "The answer is 42. "),
    ("Let me look.\n<tool_call>", "Let me look.\n"),
    ("Let me look.<tool_call>\n", "Let me look.\n"),
    ("Let me look.<too", "Let me look."),
    ("Done.\nhink>", "Done.\n"),
    ("Done. call>", "Done. "),
    ("text.</think><think>\n\n</think>", "text.\n\n"),
    ("```py\nx\n```\n</think>", "```py\nx\n```\n"),
    ("**bold**</think>", "**bold**"),
    ("答案是42。</think>", "答案是42。"),
    ("</think>", ""),
    ("<tool_call>", ""),
    ("</think", ""),
    # As vLLM 0.18 and 0.33 send them for requests with a stop string.
    ("<th<think>ink>\n\nHello.", "\n\nHello."),
    ("ink><thinink>\n\nHello.", "\n\nHello."),
]
HEALTHY = [
    "Hello, world.",
    "call the doctor",
    "think it over",
    "in all of this I think",
    "a < b and b > c",
    "x <",
    "<",
    "<link>",
    "Use <drink>",
    "see my_call>",
    "<think> and </think> are tags",
    "</think> ends the reasoning",
    "</think>, then the answer",
    "`</think>` ends it",
    "The tag `</think>`",
    'He wrote "</think>"',
    'He wrote "see </think>',
    "Use `x </think>",
    "```\n</think>\n```",
    "```\n<tool_call>",
    "~~~xml\n<think>\n\n</think>",
    "Here:\n\n    </think>",
    "Reasoning ends with </think>",
    "The tag is:\n\n</think>",
    "Write <think></think>",
    "- <think>\n- </think>",
    "1. </think>",
    "> </think>",
    "**</think>",
    "Say </think> and go on.",
    "Say it.</think> Then go on.",
    "<think>I see</think>Hello",
    "<think>long thought</think>",
    "<think>Hello",
    '<tool_call>\n{"name": "x"}\n</tool_call>',
    "<tool_call>get_weather\n<arg_key>a</arg_key>\n</tool_call>",
    "Look.\n<tool_call>\n<function=x>\n</function>\n</tool_call>",
    "> quoted text",
    "x<tool",
    ">",
]
PARTS = ["hink>", "ink>", "call>", "<too", "</th", "<thin", "<t", "</", "/", "l>", "nk>", "<", ">"]
WORDS = ["`", "```", "```py\n", '"', ":", ".", ", ", " ", "\n", "\n\n", "    ", "- ", "1. ", "**", "Hello", "a word"]
BITS = st.sampled_from(
    [*sorted(DEFAULT.whole), *PARTS, *WORDS, "think", "call", "in", "é", "😀", "{", "x" * 70, " " * 40]
)
PLAIN = st.lists(
    st.sampled_from('` ``` " : . , - 1. ** Hello think call in é 😀 { /'.split(" ") + [" ", "\n"]), max_size=14
)
TEXTS = st.lists(BITS, max_size=14).map("".join)
PLACES = st.lists(st.integers(0, 2000), max_size=30)
ENDS = st.sampled_from(list(End))


@pytest.mark.parametrize(("text", "shown"), STRAY)
def test_stray_tags_go(text: str, shown: str) -> None:
    assert clean(text, End.WHOLE) == shown
    assert clean(text, End.UNKNOWN).endswith(text[-3:])


@pytest.mark.parametrize("text", HEALTHY)
def test_everything_else_stays(text: str) -> None:
    assert clean(text, End.WHOLE) == text


def in_pieces(text: str, pieces: list[str], end: End, reasoned: bool, start: bool) -> str:
    edges = Edges(reasoned=reasoned, start=start)
    for piece in pieces:
        edges.feed(piece)
        assert edges.total - edges.decided <= MAX_RUN + DEFAULT.longest + 1
    edges.end(end)
    assert edges.decided == len(text)
    said, at = [], 0
    for piece in pieces:
        said.append(edges.kept(piece, at, at + len(piece)))
        at += len(piece)
    return "".join(said)


@settings(max_examples=2000, deadline=None)
@given(TEXTS, PLACES, ENDS, st.booleans(), st.booleans())
@example("a </think></think>", [11], End.WHOLE, False, True)
@example("<<too</think>", [], End.WHOLE, False, False)
@example("x.</think>" + " " * 600 + "</think>", [300], End.WHOLE, False, True)
def test_any_cut_gives_the_same(text: str, places: list[int], end: End, reasoned: bool, start: bool) -> None:
    whole = in_pieces(text, [text], end, reasoned, start)
    assert in_pieces(text, cut(text, places), end, reasoned, start) == whole
    assert in_pieces(text, list(text), end, reasoned, start) == whole
    if end is not End.UNKNOWN:
        assert clean(text, end, reasoned=reasoned, start=start) == whole


@settings(max_examples=1500, deadline=None)
@given(TEXTS, st.booleans())
def test_only_tags_and_parts_of_tags_are_removed(text: str, reasoned: bool) -> None:
    edges = Edges(reasoned=reasoned)
    edges.feed(text)
    edges.end(End.WHOLE)
    for start, end in edges.removed:
        gone = text[start:end]
        assert DEFAULT.match(gone, 0) == len(gone) or gone in DEFAULT.cut
    # What lies between the first and the last thing that stays has lost nothing.
    shown = edges.kept(text, 0, len(text)).strip()
    assert shown in text or not shown


@settings(max_examples=1500, deadline=None)
@given(PLAIN.map("".join), ENDS)
def test_text_without_tags_is_never_touched(text: str, end: End) -> None:
    assert clean(text, end) == text


def mentions() -> list[str]:
    """Contents of all cases of the parsers' tests in which a tag is only talked about."""
    folder = Path(__file__).parents[1] / "cases"
    found = []
    for file in sorted(folder.glob("*neg*.json")):
        case = json.loads(file.read_text(encoding="utf-8"))
        text = (case.get("expect") or {}).get("content")
        if isinstance(text, str) and text:
            found.append(text)
    return found


def test_mentions_of_the_parsers_cases_stay() -> None:
    texts = mentions()
    assert len(texts) >= 5
    assert [text for text in texts if clean(text, End.WHOLE, reasoned=True) != text] == []


def test_made_up_prose_about_tags_stays() -> None:
    dice = random.Random(7)
    words = "the model closes its thought with this tag and then it writes an answer that you read".split()
    frames = ["`{}`", '"{}"', "the {} tag", "tags such as {} and more", "({})", "with {}, which", "```\n{}\n```\n"]
    wrong = []
    for _ in range(500):
        before = " ".join(dice.choices(words, k=dice.randint(1, 12)))
        after = " ".join(dice.choices(words, k=dice.randint(1, 12)))
        text = f"{before} {dice.choice(frames).format(dice.choice(sorted(DEFAULT.whole)))} {after}."
        wrong += [text] if clean(text, End.WHOLE, reasoned=dice.random() < 0.5) != text else []
    assert wrong == []


def test_long_texts_take_linear_time() -> None:
    for text in (
        "</think>" * 40_000,
        "a </think> " * 30_000,
        " " * 300_000,
        "x.</think> " * 30_000,
        "<think>\n" * 40_000,
    ):
        start = time.process_time()
        clean(text, End.WHOLE)
        assert time.process_time() - start < 3


def test_a_tag_of_another_name() -> None:
    tags = Tags(("think", "mm:think"), ("tool_call",))
    assert clean("</mm:think>\n\nHi", End.WHOLE, tags) == "\n\nHi"
    assert clean("</mm:think>\n\nHi", End.WHOLE) == "</mm:think>\n\nHi"
