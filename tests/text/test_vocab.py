"""Where the special tokens of a delta stand in its text, and what it costs to find out."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace

import pytest

from engine_overlay.text.vocab import Vocab

END, OPEN = "</think>", "<tool_call>"
WORDS = {1: END, 2: OPEN, 10: "a", 11: " b", 12: "</", 13: "think", 14: ">"}


class Counted:
    """``decode`` of the words; ``read`` counts the ids that it was given."""

    def __init__(self) -> None:
        self.read = 0
        form = SimpleNamespace(tokens=(END, OPEN))
        self.vocab = Vocab(form, lambda: {END: 1, OPEN: 2}, self.decode)

    def decode(self, ids: Sequence[int]) -> str:
        self.read += len(ids)
        return "".join(WORDS[i] for i in ids)


@pytest.mark.parametrize(
    ("ids", "text", "whole", "marks"),
    [
        ([10, 1, 11], "a</think> b", "a</think> b", [(1, END)]),
        ([10, 1, 11], "a b", "a</think> b", [(1, END)]),
        ([12, 13, 14, 1, 11], "</think></think> b", "</think></think> b", [(8, END)]),
        ([12, 13, 14, 1, 11], "</think> b", "</think></think> b", [(8, END)]),
        ([1, 2, 10, 1], "a", "</think><tool_call>a</think>", [(0, END), (8, OPEN), (20, END)]),
        ([1, 10], "held a", "held </think>a", [(5, END)]),
    ],
    ids=["shown", "left out", "spelled before", "spelled before, left out", "several", "text of before"],
)
def test_places(ids, text, whole, marks):
    assert Counted().vocab.placed(text, ids) == (whole, marks)


@pytest.mark.parametrize("shown", [True, False])
def test_many_cost_what_their_number_costs(shown):
    def cost(times: int) -> int:
        counted = Counted()
        text = (f"a{END} b" if shown else "a b") * times
        assert len(counted.vocab.placed(text, [10, 1, 11] * times)[1]) == times
        return counted.read

    assert cost(300) < 3.3 * cost(100)
