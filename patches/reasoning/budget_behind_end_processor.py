"""A thinking budget forces no end of reasoning into an answer whose reasoning is over, on releases before 0.21.

Symptom: with ``thinking_token_budget`` a ``</think>`` stands in the middle of the answer, or inside the arguments of a
tool call, which are no JSON any more: the model had ended its reasoning by spelling ``</think>`` with ordinary tokens,
or by the opener of a tool call.

Cause: as for ``budget_behind_end``; in these releases the built-in ``ThinkingTokenBudgetLogitsProcessor`` keeps the
budget.

Change: the same, in front of the processor's count.

Risk: an answer that opens a second block of reasoning has no budget for that. The worker loads the tokenizer when the
first request with a budget comes. A budget is exceeded by the length of an undecided marker at most.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from engine_overlay.engines import Engine
from engine_overlay.record import Finding, Outcome, Patch, Range, Target
from engine_overlay.text import budget

_PROCESSOR = "v1.sample.logits_processor.builtin:ThinkingTokenBudgetLogitsProcessor"
_UPDATE = f"{_PROCESSOR}._update_think_state"
_INIT = f"{_PROCESSOR}.__init__"

PATCH = Patch(
    id="budget_behind_end_processor",
    engines={"vllm": Range("0.19.0", "0.20.2"), "aphrodite": Range("0.20.0", "0.20.0")},
    targets=(
        Target(path=_UPDATE, bodies=("2605c88c02e1",)),
        Target(path=_INIT, bodies=("aa196c63a717", "b18528716d0d", "b762b7cdd999")),
    ),
    reads=(
        # The entries of a request's state.
        Target(path=f"{_PROCESSOR}._init_state_entry", bodies=("b4488833ff49",)),
        # Forces where in_end is set.
        Target(path=f"{_PROCESSOR}.apply", bodies=("b1cde512d76c",)),
    ),
    upstream=(),
    relationship="different approach",
    introduced_in={"vllm": "0.19.0", "aphrodite": "0.20.0"},
    # From 0.21 on ThinkingBudgetStateHolder keeps the budget.
    fixed_in={"vllm": "0.21.0", "aphrodite": "0.21.0"},
    superseded_by="budget_behind_end",
    group=None,
    requires=(),
    conflicts=(),
    after=(),
    default=True,
    default_reason="without it a budget breaks answers and the arguments of calls",
    scope=("engine core", "worker"),
    native_alternative=None,
    remove_when="vllm 0.20 and aphrodite 0.20 are no longer supported",
)

_CONFIG = "_engine_overlay_config"
_READING = "_engine_overlay_reading"


def build(engine: Engine, originals: Mapping[str, Any]) -> Mapping[str, Any]:
    stock_update, stock_init = originals[_UPDATE], originals[_INIT]

    def __init__(self: Any, config: Any, *arguments: Any, **named: Any) -> None:
        stock_init(self, config, *arguments, **named)
        setattr(self, _CONFIG, config)

    def reading_of(processor: Any) -> budget.Reading | None:
        kept = vars(processor)
        if _READING not in kept:
            start, end = processor.reasoning_start_token_ids, processor.reasoning_end_token_ids
            kept[_READING] = budget.reading_from(engine, kept[_CONFIG], start, end)
        return kept[_READING]

    def _update_think_state(self: Any, state: dict[str, Any]) -> None:
        budget.update(
            state,
            self.reasoning_start_token_ids,
            self.reasoning_end_token_ids,
            reading_of(self),
            lambda: stock_update(self, state),
        )

    return {_UPDATE: _update_think_state, _INIT: __init__}


def probe(engine: Engine) -> Finding:
    """Let a request with a budget of 6 spell its ``</think>`` after two words: is another one forced?"""
    builtin = engine.module("v1.sample.logits_processor.builtin")
    if not hasattr(builtin, "ThinkingTokenBudgetLogitsProcessor"):
        return Finding(Outcome.ABSENT, "this release has no ThinkingTokenBudgetLogitsProcessor")
    import torch

    with budget.worker(engine) as (tokenizer, config):
        vocabulary = tokenizer.get_vocab()
        processor = builtin.ThinkingTokenBudgetLogitsProcessor(config, torch.device("cpu"), False)
        output: list[int] = []
        update = budget.update_of(engine, [vocabulary["<think>"]], output, 6)
        forced = None
        for piece in ("Hm", ".", "</", "think", ">", "\n", "Four", ".", "\n", "Four"):
            processor.update_state(update)
            logits = processor.apply(torch.zeros(1, len(vocabulary)))
            if logits[0, vocabulary["</think>"]] > 0:
                forced = tokenizer.decode(output)
                break
            output.append(vocabulary[piece])
            update = None
    if forced is None:
        return Finding(Outcome.ABSENT, f"nothing is forced in {tokenizer.decode(output)!r}")
    return Finding(Outcome.PRESENT, f"'</think>' is forced after {forced!r}")
