"""A thinking budget forces no end of reasoning into an answer whose reasoning is over.

Symptom: with ``thinking_token_budget`` a ``</think>`` stands in the middle of the answer, or inside the arguments of a
tool call, which are no JSON any more: the model had ended its reasoning by spelling ``</think>`` with ordinary tokens,
or by the opener of a tool call. With a phrase in ``reasoning_end_str`` the whole phrase is put into the answer of a
model that had ended its reasoning with a plain ``</think>``.

Cause: ``ThinkingBudgetStateHolder`` looks for the ids of the forced end only.

Change: in front of its count the ids of the output are looked at, as in ``grammar_behind_spelled_end``: reasoning is
over with the end that the reasoning parser sees itself, with a spelled one that is no mention, and, where the parser's
format says so, with the opener of a call whose head follows and names a tool that the prompt declares. From then on
nothing is counted or forced; nor when the output begins with something else than the start of reasoning. Where a
marker is undecided when the budget is used up, the end waits until it is decided. An end that is being forced is left
to the engine, and so are formats with channels (gpt-oss, muse) or phrases (granite).

Risk: an answer that opens a second block of reasoning has no budget for that. The worker loads the tokenizer when the
first request with a budget comes. A budget is exceeded by the length of an undecided marker at most.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from engine_overlay.engines import Engine
from engine_overlay.record import Finding, Outcome, Patch, Range, Target
from engine_overlay.text import budget

_HOLDER = "v1.sample.thinking_budget_state:ThinkingBudgetStateHolder"
_UPDATE = f"{_HOLDER}._update_think_state"
_INIT = f"{_HOLDER}.__init__"

PATCH = Patch(
    id="budget_behind_end",
    engines={"vllm": Range("0.21.0", "0.33.0"), "aphrodite": Range("0.21.0", "0.24.1")},
    targets=(
        Target(path=_UPDATE, bodies=("357cf8bc4be4", "61621f7ac796", "f80d8df3fc10")),
        Target(path=_INIT, bodies=("b2022b397723", "b0440e29f6d8")),
    ),
    reads=(
        # The entries of a request's state.
        Target(path=f"{_HOLDER}._init_state_entry", bodies=("ce7e349c999a", "6aeaa63269f0", "75953adf4ca5")),
        # Gives the state the output and the drafts of the step.
        Target(path=f"{_HOLDER}.update_state", bodies=("38591900d2c8", "8c9a81aed0c9")),
        # Forces where in_end is set.
        Target(
            path=f"{_HOLDER}._apply_forcing_to_logits", bodies=("cbd36500ffa9", "2142c52c504e", "61171546764f")
        ),
        # Sets the current config, from which the tokenizer is known, while it makes the worker's batch.
        Target(
            path="v1.worker.worker_base:WorkerWrapperBase.init_device",
            bodies=("d8df56b7dfa0", "3703b0cf9d59", "047fb2826eaa"),
        ),
    ),
    upstream=(),
    relationship="different approach",
    introduced_in={"vllm": "0.21.0", "aphrodite": "0.21.0"},
    fixed_in={"vllm": None, "aphrodite": None},
    superseded_by=None,
    group=None,
    requires=(),
    conflicts=(),
    after=(),
    default=True,
    default_reason="without it a budget breaks answers and the arguments of calls",
    scope=("engine core", "worker"),
    native_alternative=None,
    remove_when="the engine sees every end of reasoning that its reasoning parser and the API server see",
)

_CONFIG = "_engine_overlay_config"
_READING = "_engine_overlay_reading"


def build(engine: Engine, originals: Mapping[str, Any]) -> Mapping[str, Any]:
    stock_update, stock_init = originals[_UPDATE], originals[_INIT]

    def __init__(self: Any, *arguments: Any, **named: Any) -> None:
        stock_init(self, *arguments, **named)
        setattr(self, _CONFIG, budget.current_config(engine))

    def reading_of(holder: Any) -> budget.Reading | None:
        kept = vars(holder)
        if _READING not in kept:
            start, end = holder.think_start_token_ids, holder.think_end_token_ids
            kept[_READING] = budget.reading_from(engine, kept.get(_CONFIG), start, end)
        return kept[_READING]

    def _update_think_state(self: Any, state: dict[str, Any]) -> None:
        if state.get("thinking_token_budget", -1) == -1:
            stock_update(self, state)
            return
        budget.update(
            state,
            self.think_start_token_ids,
            self.think_end_token_ids,
            reading_of(self),
            lambda: stock_update(self, state),
        )

    return {_UPDATE: _update_think_state, _INIT: __init__}


def probe(engine: Engine) -> Finding:
    """Let a request with a budget of 6 spell its ``</think>`` after two words: is another one forced?"""
    if engine.source("v1.sample.thinking_budget_state") is None:
        return Finding(Outcome.ABSENT, "this release has no ThinkingBudgetStateHolder")
    import torch

    state = engine.module("v1.sample.thinking_budget_state")
    with budget.worker(engine) as (tokenizer, config):
        vocabulary = tokenizer.get_vocab()
        holder = state.ThinkingBudgetStateHolder(config.reasoning_config, 1, 0, torch.device("cpu"), False)
        output: list[int] = []
        holder.sync_batch(budget.update_of(engine, [vocabulary["<think>"]], output, 6))
        forced = None
        for piece in ("Hm", ".", "</", "think", ">", "\n", "Four", ".", "\n", "Four"):
            holder.update_state([output], None)
            if holder._state[0]["in_end"]:
                forced = tokenizer.decode(output)
                break
            output.append(vocabulary[piece])
    if forced is None:
        return Finding(Outcome.ABSENT, f"nothing is forced in {tokenizer.decode(output)!r}")
    return Finding(Outcome.PRESENT, f"'</think>' is forced after {forced!r}")
