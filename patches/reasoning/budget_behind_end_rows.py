"""A thinking budget forces no end of reasoning into an answer whose reasoning is over, on the V2 model runner.

Symptom: with ``thinking_token_budget`` a ``</think>`` stands in the middle of the answer, or inside the arguments of a
tool call, which are no JSON any more: the model had ended its reasoning by spelling ``</think>`` with ordinary tokens,
or by the opener of a tool call.

Cause: as for ``budget_behind_end``; on the V2 model runner (the default on GPUs from vLLM 0.29 and Aphrodite 0.24 on)
``ThinkingBudgetState`` looks for the ids of the natural end in a kernel on the device.

Change: in a step in which a request's budget may be used up, its tokens are copied to the host and looked at as in
``budget_behind_end``. Where reasoning is over the request's budget is switched off for good; where a marker is
undecided the rows of this step are left as they were. The kernels stay.

Risk: that copy waits for the device: once at the first step of a request with a budget, and in the few steps around
its budget. An answer that opens a second block of reasoning has no budget for that. The worker loads the tokenizer
when the first request with a budget comes.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

from engine_overlay.engines import Engine
from engine_overlay.record import Finding, Outcome, Patch, Range, Target
from engine_overlay.text import budget
from engine_overlay.text.budget_rows import Rows

_MODULE = "v1.worker.gpu.sample.thinking_budget"
_INIT = f"{_MODULE}:ThinkingBudgetState.__init__"
_ADD = f"{_MODULE}:ThinkingBudgetState.add_request"
_APPLY = f"{_MODULE}:ThinkingBudgetState.apply"

PATCH = Patch(
    id="budget_behind_end_rows",
    engines={"vllm": Range("0.28.0", "0.33.0"), "aphrodite": Range("0.24.0", "0.24.1")},
    targets=(
        Target(path=_INIT, bodies=("20cae393e87e",)),
        Target(path=_ADD, bodies=("b512b40684aa", "108dc9a96dbb")),
        Target(path=_APPLY, bodies=("b59f6ae4e0a1", "fdf39f6c73d2")),
    ),
    reads=(
        # Which rows it forces, and that a budget below zero is none.
        Target(path=f"{_MODULE}:_thinking_budget_kernel", bodies=("d00b0369a470",)),
        Target(path=f"{_MODULE}:apply_thinking_budget", bodies=("1e4463086b68",)),
        # all_token_ids, total_len and prompt_len.
        Target(
            path="v1.worker.gpu.states:RequestState.__init__",
            bodies=("6f5a6c7efa5d", "cdf228251c29", "b57bfe1fddd5"),
        ),
    ),
    upstream=(),
    relationship="different approach",
    introduced_in={"vllm": "0.28.0", "aphrodite": "0.24.0"},
    fixed_in={"vllm": None, "aphrodite": None},
    superseded_by=None,
    group=None,
    requires=(),
    conflicts=(),
    after=(),
    default=True,
    default_reason="without it a budget breaks answers and the arguments of calls",
    scope=("engine core", "worker"),
    native_alternative="VLLM_USE_V2_MODEL_RUNNER=0, with budget_behind_end",
    remove_when="the kernel sees every end of reasoning that the reasoning parser and the API server see",
)

_CONFIG = "_engine_overlay_config"
_ROWS = "_engine_overlay_rows"


def build(engine: Engine, originals: Mapping[str, Any]) -> Mapping[str, Any]:
    stock_init, stock_add, stock_apply = originals[_INIT], originals[_ADD], originals[_APPLY]

    def __init__(self: Any, *arguments: Any, **named: Any) -> None:
        stock_init(self, *arguments, **named)
        setattr(self, _CONFIG, budget.current_config(engine))

    def rows_of(state: Any) -> Rows | None:
        kept = vars(state)
        if _ROWS not in kept:
            start, end = state.reasoning_start_token_ids.tolist(), state.reasoning_end_token_ids.tolist()
            natural = state.natural_reasoning_end_token_ids.tolist()
            reading = budget.reading_from(engine, kept.get(_CONFIG), start, natural)
            drafts = int(getattr(state.req_states, "num_speculative_steps", 0))
            kept[_ROWS] = None if reading is None else Rows(reading, start, end, drafts)
        return kept[_ROWS]

    def add_request(self: Any, req_idx: int, sampling_params: Any) -> Any:
        if rows := vars(self).get(_ROWS):
            rows.forget(req_idx)
        return stock_add(self, req_idx, sampling_params)

    def apply(self: Any, logits: Any, *layout: Any, **named: Any) -> None:
        owners, slots, inputs, positions = step_of(*layout, **named)
        with_budget = [int(slot) for slot in slots if self.enabled and self.use_thinking_budget[slot]]
        rows = rows_of(self) if with_budget else None
        alone, over = ([], []) if rows is None else rows.left_alone(self, with_budget, owners, inputs, positions)
        if not alone:
            stock_apply(self, logits, *layout, **named)
            return
        for slot in over:
            self.thinking_token_budget.np[slot] = -1
            self.use_thinking_budget[slot] = False
            # Written to the device with the next step's.
            self._budget_dirty = True
        before = logits[alone]
        stock_apply(self, logits, *layout, **named)
        logits[alone] = before

    return {_INIT: __init__, _ADD: add_request, _APPLY: apply}


def step_of(*layout: Any, **named: Any) -> tuple[Any, Any, Any, Any]:
    """(slot of each row, slots, input id of each row, its place among its request's) from what ``apply`` is given."""
    context = named.get("ctx", layout[0] if len(layout) == 1 else None)
    if context is not None:
        # From vllm 0.31 on.
        return context.expanded_idx_mapping, context.idx_mapping_np, context.input_ids, context.expanded_local_pos
    names = ("expanded_idx_mapping", "idx_mapping", "idx_mapping_np", "input_ids", "expanded_local_pos")
    given = dict(zip(names, layout, strict=False)) | named
    return given[names[0]], given[names[2]], given[names[3]], given[names[4]]


def probe(engine: Engine) -> Finding:
    """Let a request with a budget of 6 spell its ``</think>`` after two words: is another one forced?

    The kernels need a device; what they do for one row is done by :func:`force` here.
    """
    if engine.source(_MODULE) is None:
        return Finding(Outcome.ABSENT, "this release has no thinking budget on the V2 model runner")
    import numpy as np
    import torch

    module = engine.module(_MODULE)
    pieces = ("Hm", ".", "</", "think", ">", "\n", "Four", ".", "\n", "Four")
    with budget.worker(engine) as (tokenizer, config):
        vocabulary = tokenizer.get_vocab()
        ids = [vocabulary[piece] for piece in ("<think>", *pieces)]
        tokens, length = torch.zeros(1, 64, dtype=torch.int32), torch.tensor([1], dtype=torch.int32)
        tokens[0, : len(ids)] = torch.tensor(ids, dtype=torch.int32)
        budgets = SimpleNamespace(np=np.array([6], dtype=np.int32), gpu=torch.tensor([6], dtype=torch.int32))
        state = module.ThinkingBudgetState.__new__(module.ThinkingBudgetState)
        state.req_states = SimpleNamespace(
            all_token_ids=SimpleNamespace(gpu=tokens),
            total_len=SimpleNamespace(gpu=length),
            prompt_len=SimpleNamespace(np=np.array([1])),
        )
        state.enabled, state.thinking_token_budget, state.use_thinking_budget = True, budgets, np.array([True])
        state.cached_last_start = state.cached_last_end = state.cached_scan_pos = torch.zeros(1, dtype=torch.int32)
        state.reasoning_start_token_ids = torch.tensor([vocabulary["<think>"]])
        state.reasoning_end_token_ids = torch.tensor([vocabulary["</think>"]])
        state.natural_reasoning_end_token_ids = state.reasoning_end_token_ids
        setattr(state, _CONFIG, config)
        one, slots = torch.zeros(1, dtype=torch.int32), np.array([0])
        forced, kernels = None, module.apply_thinking_budget
        module.apply_thinking_budget = force
        try:
            for size in range(1, len(ids) + 1):
                length[0] = size
                logits, inputs = torch.zeros(1, len(vocabulary)), tokens[0, size - 1 : size]
                if hasattr(module, "LogitsContext"):
                    context = SimpleNamespace(
                        expanded_idx_mapping=one, idx_mapping=one, idx_mapping_np=slots,
                        input_ids=inputs, expanded_local_pos=one,
                    )  # fmt: skip
                    state.apply(logits, context)
                else:
                    state.apply(logits, one, one, slots, inputs, one)
                if logits[0, vocabulary["</think>"]] > 0:
                    forced = tokenizer.decode(ids[1:size])
                    break
        finally:
            module.apply_thinking_budget = kernels
    if forced is None:
        return Finding(Outcome.ABSENT, f"nothing is forced in {tokenizer.decode(ids[1:])!r}")
    return Finding(Outcome.PRESENT, f"'</think>' is forced after {forced!r}")


def force(logits: Any, req_ids: Any, owners: Any, budgets: Any, tokens: Any, lengths: Any, *more: Any) -> None:
    """What the kernels do for one row without drafts: force the end where the budget is used up and there was none."""
    start, natural, end = (int(ids[0]) for ids in more[-3:])
    slot = int(owners[0])
    ids = tokens[slot, : int(lengths[slot])].tolist()
    begun = len(ids) - 1 - ids[::-1].index(start)
    if natural not in ids[begun:] and len(ids) - begun - 1 >= int(budgets[slot]) >= 0:
        logits[0, end] = 1.0e9
