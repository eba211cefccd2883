"""Made-up answers through the engine's own keepers of thinking budgets, in a process of one release.

    python -m tests.budget.streams OUT [EXAMPLES]

Hypothesis makes the answers: reasoning of some words and mentions, then an end that comes as its special token, spelled
in any cut, or as the opener of a call, or none; then an answer. Of each it is known where its reasoning ends.
"""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

WORDS = ("Hm", ".", " so", "\n", "Four", "it", "<", "/", "=")
SPELLINGS = (
    ("</", "think", ">"),
    ("</think", ">"),
    ("<", "/think>"),
    ("<", "/", "think", ">"),
    ("</", "think", ">\n"),
    ("</", "think", ">Four"),
    (".</", "think", ">"),
)
MENTIONS = (("\n", " `", "</", "think", ">", "`"), ("\n", ' "', "</think", ">", '"'))
CALL = ("<tool_call>", "\n", "<function", "=", "get_weather", ">", "\n", "<parameter", "=", "city", ">", "\n", "Four")
SPELLED_CALL = ("<", "tool_call", ">", *CALL[1:])
PIECES = tuple(
    dict.fromkeys(piece for group in (WORDS, *SPELLINGS, *MENTIONS, CALL[1:], SPELLED_CALL) for piece in group)
)
WAIT = 14
"""Tokens that a marker may put the forced end off."""


@dataclass(frozen=True)
class Answer:
    """``end``: at which piece the end of reasoning begins, or None when there is none."""

    pieces: tuple[str, ...]
    end: int | None
    budget: int


def answers(calls: bool, spelled_calls: bool) -> st.SearchStrategy[Answer]:
    """Answers to a model whose parser ends reasoning with special openers of calls, and with spelled ones."""
    ends = [("</think>",), *SPELLINGS, None]
    ends += [CALL] if calls else []
    ends += [SPELLED_CALL] if spelled_calls else []
    parts = st.lists(st.one_of(st.sampled_from([(word,) for word in WORDS]), st.sampled_from(MENTIONS)), max_size=12)

    def made(thought: Any, end: tuple[str, ...] | None, said: Any, budget: int) -> Answer:
        pieces = [piece for part in thought for piece in part]
        at = None
        if end is not None:
            # A marker counts when it does not go on with something that makes it another word or a mention.
            pieces.append(".")
            at = len(pieces)
            pieces += end
        pieces += [piece for part in said for piece in part] if end is not None else ["Hm"] * (budget + WAIT + 2)
        return Answer(tuple(pieces), at, budget)

    said = st.lists(st.sampled_from([("Four",), (".",), ("\n",), ("<think>",), *MENTIONS]), min_size=20, max_size=30)
    return st.builds(made, parts, st.sampled_from(ends), said, st.integers(1, 24))


def forced_at(keeper: Callable[..., bool], answer: Answer, ids: dict[str, int]) -> list[int]:
    """At which pieces of the answer an end is forced; it comes in between."""
    output: list[int] = []
    forced, at, first = [], 0, True
    while at < len(answer.pieces):
        if keeper(output, answer.budget, first):
            forced.append(at)
            output.append(ids["</think>"])
            if len(forced) > 3:
                break
        else:
            output.append(ids[answer.pieces[at]])
            at += 1
        first = False
    return forced


def fault(answer: Answer, forced: list[int]) -> str:
    """What is wrong with where an end was forced; empty when nothing is."""
    if len(forced) > 1:
        return "forced again"
    if forced and answer.end is not None and forced[0] > answer.end:
        return "forced behind the end"
    if forced and forced[0] < answer.budget - 1:
        return "forced too early"
    if forced and forced[0] > answer.budget + WAIT:
        return "forced too late"
    if not forced and (answer.end is None or answer.end > answer.budget + WAIT):
        return "not forced"
    return ""


@contextlib.contextmanager
def keepers(engine: Any) -> Iterator[tuple[dict[str, Callable[..., bool]], dict[str, int]]]:
    """Whatever keeps budgets in this release, by name: (output, budget, whether it is a new request) -> forces now."""
    import torch

    from engine_overlay.text import budget

    with budget.worker(engine, "qwen3", PIECES) as (tokenizer, config):
        ids = tokenizer.get_vocab()
        prompt = [ids["get_weather"], ids["<think>"]]
        found: dict[str, Callable[..., bool]] = {}
        builtin = engine.module("v1.sample.logits_processor.builtin")
        if hasattr(builtin, "ThinkingTokenBudgetLogitsProcessor"):
            processor = builtin.ThinkingTokenBudgetLogitsProcessor(config, torch.device("cpu"), False)

            def by_processor(output: list[int], limit: int, new: bool) -> bool:
                processor.update_state(budget.update_of(engine, prompt, output, limit) if new else None)
                return bool(processor.apply(torch.zeros(1, len(ids)))[0, ids["</think>"]] > 0)

            found["processor"] = by_processor
        if engine.source("v1.sample.thinking_budget_state") is not None:
            state = engine.module("v1.sample.thinking_budget_state")
            holder = state.ThinkingBudgetStateHolder(config.reasoning_config, 1, 0, torch.device("cpu"), False)

            def by_holder(output: list[int], limit: int, new: bool) -> bool:
                if new:
                    holder.sync_batch(budget.update_of(engine, prompt, output, limit))
                holder.update_state([output], None)
                return bool(holder._state[0]["in_end"])

            found["holder"] = by_holder
        if engine.source("v1.worker.gpu.sample.thinking_budget") is not None:
            found["rows"] = by_rows(engine, config, ids, prompt)
        yield found, ids


def by_rows(engine: Any, config: Any, ids: dict[str, int], prompt: list[int]) -> Callable[..., bool]:
    """The V2 runner's state on this CPU; its kernels are the real ones where Triton's interpreter is there."""
    import numpy as np
    import torch

    from engine_overlay.patches.reasoning import budget_behind_end_rows as patch

    module = engine.module("v1.worker.gpu.sample.thinking_budget")
    real = engine.module("triton_utils").HAS_TRITON
    if not real:
        module.apply_thinking_budget = patch.force
    ints = torch.int32
    state = module.ThinkingBudgetState.__new__(module.ThinkingBudgetState)
    tokens, length = torch.zeros(1, 512, dtype=ints), torch.zeros(1, dtype=ints)
    gpu = torch.zeros(1, dtype=ints)
    budgets = SimpleNamespace(np=gpu.numpy(), gpu=gpu, copy_to_uva=lambda: gpu)
    state.req_states = SimpleNamespace(
        all_token_ids=SimpleNamespace(gpu=tokens),
        total_len=SimpleNamespace(gpu=length),
        prompt_len=SimpleNamespace(np=np.array([len(prompt)])),
    )
    state.enabled, state.thinking_token_budget, state.use_thinking_budget = True, budgets, np.array([True])
    state.device, state._reset_reqs, state._budget_dirty = torch.device("cpu"), [], False
    state.reasoning_start_token_ids = torch.tensor([ids["<think>"]], dtype=ints)
    state.reasoning_end_token_ids = torch.tensor([ids["</think>"]], dtype=ints)
    state.natural_reasoning_end_token_ids = state.reasoning_end_token_ids
    state.cached_last_start, state.cached_last_end, state.cached_scan_pos = (torch.zeros(1, dtype=ints) for _ in "abc")
    setattr(state, patch._CONFIG, config)
    one, slots = torch.zeros(1, dtype=ints), np.array([0])

    def forces(output: list[int], limit: int, new: bool) -> bool:
        if new:
            state.add_request(0, SimpleNamespace(thinking_token_budget=limit))
            state.cached_last_start.fill_(-1)
            state.cached_last_end.fill_(-1)
            state.cached_scan_pos.zero_()
            state._reset_reqs.clear()
        whole = [*prompt, *output]
        tokens[0, : len(whole)] = torch.tensor(whole, dtype=ints)
        length[0] = len(whole)
        logits, inputs = torch.zeros(1, len(ids)), tokens[0, len(whole) - 1 : len(whole)]
        layout = {"expanded_idx_mapping": one, "idx_mapping": one, "idx_mapping_np": slots, "input_ids": inputs}
        layout["expanded_local_pos"] = one
        if hasattr(module, "LogitsContext"):
            state.apply(logits, SimpleNamespace(**layout))
        else:
            state.apply(logits, **layout)
        return bool(logits[0, ids["</think>"]] > 0)

    return forces


def faults_of(keeper: Callable[..., bool], ids: dict[str, int], made: Any, examples: int) -> dict[str, Any]:
    """``{"tried": number, "faults": {what: [pieces, end, budget, where it was forced]}}``."""
    faults: dict[str, Any] = {}
    tried = 0

    @settings(
        max_examples=examples, deadline=None, database=None, derandomize=True, suppress_health_check=list(HealthCheck)
    )
    @given(made)
    def run(answer: Answer) -> None:
        nonlocal tried
        tried += 1
        forced = forced_at(keeper, answer, ids)
        if what := fault(answer, forced):
            faults.setdefault(what, [answer.pieces, answer.end, answer.budget, forced])

    run()
    return {"tried": tried, "faults": faults}


def main(out: str, examples: str = "400") -> None:
    from engine_overlay import engines, importer

    (engine,) = engines.installed()
    __import__(engine.name)
    parser = engine.module("reasoning").ReasoningParserManager.get_reasoning_parser("qwen3")
    legacy = engine.source("parser.engine.parser_engine") is None
    calls = not legacy or hasattr(parser, "is_reasoning_end") and "is_reasoning_end" in vars(parser)
    made, seen = answers(calls, not legacy), {}
    ledger = importer.overlay.ledgers[engine.name]
    with keepers(engine) as (found, ids):
        for name, keeper in found.items():
            on = faults_of(keeper, ids, made, int(examples))
            applied = [i for i in ledger.verdicts if ledger.state(i)[0] == "applied"]
            left = ledger.undo_all()
            off = faults_of(keeper, ids, made, int(examples))
            for patch_id in applied:
                ledger.redo(patch_id)
            seen[name] = {"on": on, "off": off, "left": left}
    Path(out).write_text(json.dumps(seen, ensure_ascii=False), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
