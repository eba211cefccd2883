"""Log-probabilities that a release's own sampler returns, beside those computed with torch alone.

    python -m tests.patches.logprobs.on_engine FILE

Runs in a process of one release; test_processed_logprobs judges the JSON. Each row of the batch is one way to
sample. -inf is written as null.
"""

from __future__ import annotations

import dataclasses
import json
import math
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

VOCABULARY = 64
PROMPT, OUTPUT = [3, 5, 7], [5, 5, 9]
PLAIN = {
    "temperature": 1.0,
    "top_k": VOCABULARY,
    "top_p": 1.0,
    "min_p": 0.0,
    "repetition": 1.0,
    "frequency": 0.0,
    "presence": 0.0,
}
ROWS: dict[str, dict[str, float]] = {
    "temperature": {"temperature": 0.7},
    "top-k": {"temperature": 0.7, "top_k": 5},
    "top-p": {"temperature": 0.7, "top_p": 0.6},
    "min-p": {"temperature": 0.7, "min_p": 0.2},
    "penalties": {"temperature": 0.9, "repetition": 1.3, "frequency": 0.5, "presence": 0.4},
    "all": {
        "temperature": 0.8,
        "top_k": 20,
        "top_p": 0.95,
        "min_p": 0.005,
        "repetition": 1.2,
        "frequency": 0.3,
        "presence": 0.2,
    },
}


PENALISED = {"vllm": 1, "aphrodite": 2}
"""How often an engine applies the penalties: Aphrodite among its logits processors and again in its sampler order."""


def expected(logits: Any, row: dict[str, float], times: int) -> Any:
    """Log-probabilities (V) of the distribution that ``row`` samples from; -inf outside the kept set."""
    import torch

    x = logits.clone()
    for _ in range(times):
        for token in set(PROMPT + OUTPUT):
            x[token] = x[token] / row["repetition"] if x[token] > 0 else x[token] * row["repetition"]
        for token in set(OUTPUT):
            x[token] -= row["frequency"] * OUTPUT.count(token) + row["presence"]
    x /= row["temperature"]
    probabilities = x.softmax(-1)
    x[probabilities < row["min_p"] * probabilities.max()] = -math.inf
    x[x < x.topk(int(row["top_k"])).values[-1]] = -math.inf
    ordered, places = x.sort(descending=True)
    before = ordered.softmax(-1).cumsum(-1) - ordered.softmax(-1)
    x[places[before >= row["top_p"]]] = -math.inf
    return torch.log_softmax(x, -1)


def metadata(engine: Any, rows: list[dict[str, float]]) -> Any:
    """The release's own SamplingMetadata for these rows; what it has beyond this is not used (None)."""
    import torch

    def column(name: str, dtype: Any = torch.float32) -> Any:
        return torch.tensor([row[name] for row in rows], dtype=dtype)

    processors = engine.module("v1.sample.logits_processor")
    builtin = engine.module("v1.sample.logits_processor.builtin")
    config = SimpleNamespace(scheduler_config=SimpleNamespace(max_num_seqs=len(rows)))
    min_p = builtin.MinPLogitsProcessor(config, torch.device("cpu"), False)
    params = engine.module("sampling_params").SamplingParams
    added = [(i, params(min_p=row["min_p"]), None, []) for i, row in enumerate(rows)]
    min_p.update_state(processors.BatchUpdate(batch_size=len(rows), removed=[], added=added, moved=[]))
    known = {
        "temperature": column("temperature"),
        "all_greedy": False,
        "all_random": True,
        "top_p": column("top_p"),
        "top_k": column("top_k", torch.int32),
        "generators": {},
        "max_num_logprobs": VOCABULARY,
        "no_penalties": False,
        "prompt_token_ids": torch.tensor([PROMPT] * len(rows)),
        "frequency_penalties": column("frequency"),
        "presence_penalties": column("presence"),
        "repetition_penalties": column("repetition"),
        "output_token_ids": [list(OUTPUT) for _ in rows],
        "allowed_token_ids_mask": None,
        "bad_words_token_ids": {},
        "logitsprocs": processors.LogitsProcessors([min_p]),
    }
    made = engine.module("v1.sample.metadata").SamplingMetadata
    needed = [f.name for f in dataclasses.fields(made) if f.default is f.default_factory is dataclasses.MISSING]
    return made(**{name: known.get(name) for name in {*needed, *known}})


def main(out: str) -> None:
    import torch

    from engine_overlay import engines

    engine = engines.installed()[0]
    rows = [PLAIN | row for row in ROWS.values()]
    logits = torch.randn(len(rows), VOCABULARY, generator=torch.Generator().manual_seed(0)) * 2
    found: dict[str, Any] = {}
    for mode in ("raw_logprobs", "processed_logprobs"):
        sampler = engine.module("v1.sample.sampler").Sampler(logprobs_mode=mode)
        # The draw on the CPU platform needs the compiled part of the engine; this is its own way without.
        sampler.topk_topp_sampler.forward = sampler.topk_topp_sampler.forward_native
        sampled = sampler(logits.clone(), metadata(engine, rows))
        tensors = sampled.logprobs_tensors
        by_token = torch.empty(len(rows), VOCABULARY)
        # Column 0 is the sampled token again.
        by_token.scatter_(1, tensors.logprob_token_ids[:, 1:].long(), tensors.logprobs[:, 1:])
        found[mode] = {"logprobs": finite(by_token), "sampled": sampled.sampled_token_ids[:, 0].tolist()}
    times = PENALISED[engine.name]
    wanted = [expected(x, row, times) for x, row in zip(logits, rows, strict=True)]
    found["expected"] = finite(torch.stack(wanted))
    found["raw"] = finite(torch.log_softmax(logits, -1))
    Path(out).write_text(json.dumps(found), encoding="utf-8")


def finite(values: Any) -> list[list[float | None]]:
    return [[None if math.isinf(x) else x for x in row] for row in values.tolist()]


if __name__ == "__main__":
    main(sys.argv[1])
