"""The engine's side of ``engine-overlay parity``: one process a setting, as engines cannot change theirs.

    python -m engine_overlay.cli.rollout JOB ANSWER

JOB and ANSWER are JSON files of the parity command. No command of its own.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from pathlib import Path
from typing import Any

from engine_overlay import engines
from engine_overlay.log import one_line


def main(argv: list[str]) -> int:
    """0: the answer has the samples; 1: it has the reason why not."""
    job = json.loads(Path(argv[0]).read_text())
    try:
        answer, code = sample(job), 0
    except Exception as error:
        answer, code = {"error": one_line(error)}, 1
    Path(argv[1]).write_text(json.dumps(answer))
    return code


def sample(job: dict[str, Any]) -> dict[str, Any]:
    """Start the engine with the job's arguments and sample for each prompt of token ids."""
    engine = importlib.import_module(job["engine"])
    llm = engine.LLM(model=job["model"], **job["arguments"])
    params = engine.SamplingParams(**job["sampling"], logprobs=1)
    outputs = llm.generate([{"prompt_token_ids": ids} for ids in job["prompts"]], params, use_tqdm=False)
    samples = []
    for i, output in enumerate(outputs):
        for one in output.outputs:
            ids = list(one.token_ids)
            if one.logprobs is None:
                raise RuntimeError("the engine gave no log-probabilities")
            samples.append(
                {
                    "prompt": i,
                    "token_ids": ids,
                    "logprobs": [float(at[token].logprob) for at, token in zip(one.logprobs, ids, strict=True)],
                    "text": one.text,
                    "finish_reason": one.finish_reason,
                    "cached_tokens": getattr(output, "num_cached_tokens", None) or 0,
                }
            )
    return {"samples": samples, "settings": settings(llm, job["engine"])}


def settings(llm: Any, name: str) -> dict[str, Any]:
    """What the engine made of its arguments, read from its configuration."""
    core = llm.llm_engine
    config = getattr(core, "vllm_config", None) or core.aphrodite_config
    model = config.model_config
    head = getattr(model, "head_dtype", None)
    return {
        "engine": name,
        "version": (found := engines.locate(name)) and found.version,
        "device": _device(config),
        "dtype": _type(model.dtype),
        "logprobs_mode": str(getattr(model.logprobs_mode, "value", model.logprobs_mode)),
        "enable_prefix_caching": bool(config.cache_config.enable_prefix_caching),
        "async_scheduling": bool(config.scheduler_config.async_scheduling),
        "head_dtype": _type(head) if head is not None else _type(model.dtype),
        "batch_invariant": os.environ.get(f"{name.upper()}_BATCH_INVARIANT", "0") not in ("", "0"),
    }


def _device(config: Any) -> str:
    device = getattr(config.device_config, "device_type", None) or getattr(config.device_config, "device", "")
    return str(device)


def _type(dtype: Any) -> str:
    return str(dtype).removeprefix("torch.")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
