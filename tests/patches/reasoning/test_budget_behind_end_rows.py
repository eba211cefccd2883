"""Rows of the V2 model runner in which nothing may be forced (its streams on the engines: tests/budget)."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from engine_overlay.patches.reasoning import budget_behind_end_rows as patch
from engine_overlay.text import budget
from engine_overlay.text.budget_rows import Rows, last_place
from tests.patches.reasoning import gate
from tests.patches.reasoning.manager import Reasoner, Tokenizer

START, END = "<think>", "</think>"


class Tensor(list):
    """What is used of a tensor, on the host; counts how often it is copied there."""

    copies = 0

    def tolist(self) -> list[Any]:
        type(self).copies += 1
        return list(self)

    def __getitem__(self, at: Any) -> Any:
        if isinstance(at, tuple):
            return Tensor(list.__getitem__(self, at[0])[at[1]])
        if isinstance(at, list):
            return Tensor(list.__getitem__(self, n) for n in at)
        return super().__getitem__(at)


class Worker:
    """One request in slot 0 with a budget, whose prompt is ``prompt``."""

    def __init__(self, limit: int, prompt: tuple[str, ...] = (START,), drafts: int = 0) -> None:
        Tensor.copies = 0
        self.tokenizer = Tokenizer()
        ids = [self.tokenizer.id_of(text) for text in (START, END)]
        reading = budget.reading_for(Reasoner, self.tokenizer, ids[:1], ids[1:])
        assert reading is not None
        self.rows = Rows(reading, ids[:1], ids[1:], drafts)
        self.said = [self.tokenizer.id_of(piece) for piece in prompt]
        self.prompt, self.limit = len(prompt), limit

    def step(self, *pieces: str, drafts: tuple[str, ...] = ()) -> tuple[list[int], list[int]]:
        self.said += [self.tokenizer.id_of(piece) for piece in pieces]
        ids = [self.tokenizer.id_of(piece) for piece in drafts]
        state = SimpleNamespace(
            req_states=SimpleNamespace(
                total_len=SimpleNamespace(gpu=Tensor([len(self.said)])),
                all_token_ids=SimpleNamespace(gpu=Tensor([self.said])),
                prompt_len=SimpleNamespace(np=[self.prompt]),
            ),
            thinking_token_budget=SimpleNamespace(np=[self.limit]),
        )
        inputs, places = Tensor([self.said[-1], *ids]), Tensor(range(1 + len(ids)))
        return self.rows.left_alone(state, [0], Tensor([0] * len(inputs)), inputs, places)


def test_at_the_budget_a_request_that_reasons_is_left_to_the_kernel() -> None:
    worker = Worker(3)
    assert [worker.step(), *(worker.step(piece) for piece in ("Hm", "so", "so", "so"))] == [([], [])] * 5


def test_behind_a_spelled_end_the_budget_is_over() -> None:
    worker = Worker(5)
    steps = [worker.step(), *(worker.step(piece) for piece in ("Hm", "</", "think", ">", "a"))]
    assert steps == [([], [])] * 5 + [([0], [0])]


def test_rows_behind_an_end_among_the_drafts_are_left_alone() -> None:
    worker = Worker(2, drafts=4)
    worker.step()
    assert worker.step("Hm", "so", drafts=("</", "think", ">", "a")) == ([1, 2, 3, 4], [])


def test_only_steps_near_the_budget_copy_tokens() -> None:
    worker = Worker(100)
    worker.step()
    first = Tensor.copies
    for _ in range(99):
        worker.step("Hm")
    assert Tensor.copies == first
    worker.step("Hm")
    assert Tensor.copies > first


def test_a_long_prompt_does_not_use_up_the_budget() -> None:
    worker = Worker(10, prompt=("<|user|>",) * 500 + (START,))
    worker.step()
    first = Tensor.copies
    for _ in range(8):
        worker.step("Hm")
    assert Tensor.copies == first


def test_a_new_request_in_the_slot_is_a_new_one() -> None:
    worker = Worker(1)
    worker.step()
    assert worker.step("</", "think", ">") == ([0], [0])
    worker.rows.forget(0)
    worker.said = worker.said[:1]
    worker.step()
    assert worker.step("Hm", "so") == ([], [])


@pytest.mark.parametrize(("ids", "wanted", "place"), [([1, 2, 1, 2], [1, 2], 2), ([1, 1], [2], -1), ([], [1], -1)])
def test_the_last_place(ids: list[int], wanted: list[int], place: int) -> None:
    assert last_place(ids, wanted) == place


def test_the_layout_of_a_step_is_found_in_every_form() -> None:
    names = ("expanded_idx_mapping", "idx_mapping", "idx_mapping_np", "input_ids", "expanded_local_pos")
    expected = ("expanded_idx_mapping", "idx_mapping_np", "input_ids", "expanded_local_pos")
    context = SimpleNamespace(**{name: name for name in names})
    assert patch.step_of(*names) == expected
    assert patch.step_of(**{name: name for name in names}) == expected
    assert patch.step_of(context) == patch.step_of(ctx=context) == expected


def test_a_changed_body_is_refused_by_name(tmp_path) -> None:
    methods = "".join(f"    def {name}(self):\n        pass\n" for name in ("__init__", "add_request", "apply"))
    changed = f"class ThinkingBudgetState:\n{methods}"
    seen = gate.ask(tmp_path, patch, "0.33.0", {"v1.worker.gpu.sample.thinking_budget": changed})
    assert seen.code == "drifted"
    assert "ThinkingBudgetState" in seen.reason


def test_releases_without_it_are_not_affected(tmp_path) -> None:
    assert gate.ask(tmp_path, patch, "0.27.0", {}).code == "native"
