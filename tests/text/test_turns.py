"""Which part of a prompt counts for the answer behind it."""

import pytest

from engine_overlay.text import turns

ENDS = {(1,)}
WORDS = {
    0: "sys",
    1: "</think>",
    2: "\n\n",
    3: "<|im_start|>",
    4: "assistant",
    5: "\n",
    6: "Sure, it",
    7: "user",
    8: "<|e|>",
}


def decode(ids):
    return "".join(WORDS[i] for i in ids)


@pytest.mark.parametrize(
    ("prompt", "tail", "closes"),
    [
        ([3, 4, 5], None, False),
        ([3, 4, 5, 1, 2], None, True),
        ([3, 4, 5, 1, 2, 6], None, True),
        ([0, 1, 4, 5], [4, 5], False),
        ([3, 4, 5, 1, 6, 8, 3, 7, 5, 8, 3, 4, 5], [6, 8, 3, 7, 5, 8, 3, 4, 5], False),
        ([], None, False),
    ],
)
def test_an_end_counts_unless_the_header_of_an_answer_comes_behind_it(prompt, tail, closes):
    assert turns.behind_last_end(prompt, ENDS, decode) == tail
    assert turns.closes(prompt, ENDS, decode) is closes


def test_an_end_may_be_spelled_with_several_ids():
    assert turns.closes([0, 4, 1, 1], {(1, 1)}, decode)
    assert not turns.closes([0, 4, 1], {(1, 1)}, decode)


@pytest.mark.parametrize(
    "header", ["<|Assistant|>", "<start_of_turn>model\n", "]~b]ai\n", "<|sid|>assistant<|end_header_id|>\n\n"]
)
def test_the_headers_of_the_usual_templates_are_known(header):
    assert turns.behind_last_end([1, 9], ENDS, lambda ids: header) == [9]


@pytest.mark.parametrize(
    ("prompt", "opens"), [([], False), ([3, 4], False), ([9, 1], False), ([1, 9, 5], True), ([9, 1, 7, 9], True)]
)
def test_a_prompt_opens_the_reasoning_with_its_last_marker(prompt, opens):
    assert turns.opens(prompt, 9, 1) is opens
    assert not turns.opens(prompt, None, 1)
