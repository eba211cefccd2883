"""A budget is not counted behind an end, waits for a marker, and forces as before (on engines: tests/budget)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from engine_overlay.patches.reasoning import budget_behind_end as patch
from engine_overlay.text import budget
from tests.patches.reasoning import gate
from tests.patches.reasoning.manager import Reasoner, Tokenizer

START, END = "<think>", "</think>"


class Keeper:
    """Forces the end when the output has ``limit`` tokens and the ids of the end are not in it, as engines do."""

    def __init__(self, limit: int, end: tuple[str, ...] = (END,), parser: Any = Reasoner) -> None:
        self.tokenizer = Tokenizer()
        self.start, self.end = [self.tokenizer.id_of(START)], [self.tokenizer.id_of(piece) for piece in end]
        self.reading = budget.reading_for(parser, self.tokenizer, self.start, self.end)
        self.output: list[int] = []
        self.state: dict[str, Any] = {
            "in_think": True, "in_end": False, "end_count": 0, "output_tok_ids": self.output, "prompt_tok_ids": [],
            "thinking_token_budget": limit, "check_count_down": limit, "spec_token_ids": [], "force_index": [],
        }  # fmt: skip

    def stock(self) -> None:
        over = len(self.output) + len(self.state["spec_token_ids"]) >= self.state["thinking_token_budget"]
        self.state["in_end"] = over and not set(self.end) <= set(self.output)
        if self.state["in_end"]:
            self.state["force_index"] = [max(0, self.state["thinking_token_budget"] - len(self.output))]

    def forced(self, *pieces: str, drafts: Sequence[str] = ()) -> bool:
        """Whether the end is forced after these pieces more."""
        self.output += [self.tokenizer.id_of(piece) for piece in pieces]
        self.state["spec_token_ids"] = [self.tokenizer.id_of(piece) for piece in drafts]
        budget.update(self.state, self.start, self.end, self.reading, self.stock)
        return bool(self.state["in_end"])


def test_without_an_end_it_is_forced() -> None:
    keeper = Keeper(2)
    assert [keeper.forced(), keeper.forced("Hm"), keeper.forced(".")] == [False, False, True]


@pytest.mark.parametrize("end", [("</", "think", ">"), ("</think>",), (".</", "think", ">Four")])
def test_behind_an_end_nothing_is_forced(end: tuple[str, ...]) -> None:
    keeper = Keeper(6)
    assert not any(keeper.forced(piece) for piece in ("Hm", *end, *"abcdefgh", START, *"abcdefgh"))


def test_while_a_marker_is_spelled_the_end_waits() -> None:
    keeper = Keeper(2)
    assert not any(keeper.forced(piece) for piece in ("Hm", "</", "think", ">", "a", "b"))
    keeper = Keeper(2)
    assert [keeper.forced(piece) for piece in ("Hm", "</", "thi", "s")] == [False, False, False, True]


def test_it_does_not_wait_for_ever() -> None:
    keeper = Keeper(2)
    assert any(keeper.forced("<") for _ in range(20))


def test_a_mention_is_no_end() -> None:
    keeper = Keeper(7)
    assert [keeper.forced(piece) for piece in ("The tag `", "</", "think", ">", "`", "so", ".")][-1]


def test_an_end_among_the_drafts_is_waited_for() -> None:
    keeper = Keeper(4)
    assert not keeper.forced("Hm", drafts=("</", "think", ">", "a"))
    keeper = Keeper(4)
    assert keeper.forced("Hm", drafts=("so", "so", "so", "so"))
    assert keeper.state["force_index"] == [3]


def test_an_end_of_several_ids_that_is_being_forced_is_left_to_the_engine() -> None:
    keeper = Keeper(1, end=("Time is up.", END))
    assert keeper.forced("Hm")
    assert keeper.forced("Time is up.")
    assert not keeper.forced(END)


def test_a_plain_end_counts_where_a_phrase_is_forced() -> None:
    keeper = Keeper(3, end=("Time is up.", END))
    assert not any(keeper.forced(piece) for piece in ("Hm", END, "a", "b", "c"))


def test_a_start_that_does_not_begin_the_output_is_text() -> None:
    keeper = Keeper(4)
    keeper.state["in_think"] = False
    assert not any(keeper.forced(piece) for piece in ("Four", START, "a", "b", "c", "d"))
    keeper = Keeper(4)
    keeper.state["in_think"] = False
    assert [keeper.forced(piece) for piece in ("\n", START, "a", "b")] == [False, False, False, True]


@pytest.mark.parametrize("start", ["Here is my thought:", "<|channel|>analysis<|message|>", " to=self<|message|>"])
def test_formats_of_phrases_and_channels_are_left_alone(start: str) -> None:
    tokenizer = Tokenizer()
    assert budget.reading_for(Reasoner, tokenizer, [tokenizer.id_of(start)], [tokenizer.id_of("<|end|>")]) is None


def test_without_a_parser_the_text_of_the_end_counts() -> None:
    keeper = Keeper(6, parser=lambda: 1 / 0)
    assert not any(keeper.forced(piece) for piece in ("Hm", "</", "think", ">", *"abcdefgh"))


def test_a_request_without_a_known_tokenizer_is_left_to_the_engine() -> None:
    keeper = Keeper(2)
    keeper.reading = None
    assert [keeper.forced(piece) for piece in ("</", "think", ">")] == [False, True, True]


def test_a_changed_body_is_refused_by_name(tmp_path) -> None:
    changed = "class ThinkingBudgetStateHolder:\n    def _update_think_state(self, state):\n        pass\n"
    seen = gate.ask(tmp_path, patch, "0.33.0", {"v1.sample.thinking_budget_state": changed})
    assert seen.code == "drifted"
    assert "_update_think_state" in seen.reason


def test_earlier_releases_have_another_patch(tmp_path) -> None:
    assert gate.ask(tmp_path, patch, "0.20.2", {}).code == "native"
