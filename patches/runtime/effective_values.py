"""Tell once which values the engine really runs with, where a profile has wishes.

Symptom: whether log-probabilities are processed, prefixes cached, steps scheduled asynchronously and the head
accumulated in float32 is spread over arguments, defaults that the engine resolves late, and the model's config; a
run that differs from the one before does not say so.

Cause: the engine logs the arguments that differ from its defaults, not what became of them.

Change: when an executor is chosen for a finished engine config, the five values are handed to the overlay, which
logs them once, says in one line which of them are not as the profile wants and why, and shows them in
``engine-overlay status``. Nothing of the engine changes.

Risk: none for the engine. What a worker does later to its own copy of the config is not seen.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

from packaging.version import Version

from engine_overlay import profile
from engine_overlay.engines import Engine
from engine_overlay.patches.weights import fp32_head
from engine_overlay.record import Finding, Outcome, Patch, Range, Target

# Every way to start an engine asks it, with the finished config.
_TARGET = "v1.executor.abstract:Executor.get_class"

PATCH = Patch(
    id="effective_values",
    engines={"vllm": Range("0.18.0", "0.33.0"), "aphrodite": Range("0.20.0", "0.24.1")},
    targets=(Target(path=_TARGET, bodies=("c28255aa6f56", "7ab0a0a27eef", "b6fb823bc804", "1170f70c9842")),),
    reads=(
        Target(path="config.model:ModelConfig.logprobs_mode", bodies=("03b6c7a16eba",)),
        Target(path="config.model:ModelConfig.head_dtype", bodies=("9d5959eada4f", "cdc9d952780c")),
        Target(path="config.scheduler:SchedulerConfig.async_scheduling", bodies=("55abe0b8d1c9", "3d4d10105cff")),
        # None since the engine has no cascade attention any more.
        Target(path="engine.arg_utils:EngineArgs.disable_cascade_attn", bodies=("04dfc7a9b2d2", "d7df0f21b2f8")),
    ),
    upstream=(),
    relationship="different approach",
    introduced_in={"vllm": "0.18.0", "aphrodite": "0.20.0"},
    fixed_in={"vllm": None, "aphrodite": None},
    superseded_by=None,
    group=None,
    requires=(),
    conflicts=(),
    after=(),
    default=False,
    default_reason="only a profile has wishes to compare with",
    scope=("config",),
    native_alternative=None,
    remove_when="the engine logs the values that it resolved",
)


def values(engine: Engine, config: Any) -> dict[str, Any]:
    """The five values of a finished engine config, by the engine's names where it has one."""
    model = config.model_config
    arguments = engine.module("engine.arg_utils").EngineArgs
    # Where the argument has no default any more the engine does without cascade attention, whatever is set.
    cascade = arguments.disable_cascade_attn is not None and not model.disable_cascade_attn
    return {
        "logprobs_mode": str(model.logprobs_mode),
        "enable_prefix_caching": config.cache_config.enable_prefix_caching,
        "async_scheduling": config.scheduler_config.async_scheduling,
        "cascade_attention": cascade,
        "lm_head_dtype": str(_head(engine, model)).removeprefix("torch."),
    }


def _head(engine: Engine, model_config: Any) -> Any:
    since = Version(fp32_head.PATCH.fixed_in[engine.name])
    if model_config.runner_type == "pooling" or (engine.release is not None and engine.release >= since):
        return model_config.head_dtype
    # Before that the engine has no such value; the workers do what the patch says.
    wanted = fp32_head.head_dtype(engine, model_config) if profile.goes_in(engine.name, fp32_head.PATCH.id) else None
    return wanted or model_config.dtype


def probe(engine: Engine) -> Finding:
    """Choose an executor for a config, as every way to start the engine does, and see whether its values are told."""
    parts = {
        "parallel_config": SimpleNamespace(distributed_executor_backend="uni"),
        "model_config": SimpleNamespace(
            logprobs_mode="raw_logprobs",
            disable_cascade_attn=True,
            runner_type="pooling",
            head_dtype="torch.float32",
        ),
        "cache_config": SimpleNamespace(enable_prefix_caching=True),
        "scheduler_config": SimpleNamespace(async_scheduling=True),
    }
    with profile.capture() as told:
        engine.module("v1.executor.abstract").Executor.get_class(SimpleNamespace(**parts))
    if not told:
        return Finding(Outcome.PRESENT, "an executor is chosen and nothing is told of the config's values")
    return Finding(Outcome.ABSENT, f"told: {profile.spelled(told[-1])}")


def build(engine: Engine, originals: Mapping[str, Any]) -> Mapping[str, Any]:
    stock = originals[_TARGET]

    def get_class(config: Any, *args: Any, **kwargs: Any) -> Any:
        # A config that is still being made asks too; its values are not final.
        if sys._getframe(1).f_code.co_name != "__post_init__":
            profile.tell(engine.name, lambda: values(engine, config))
        return stock(config, *args, **kwargs)

    return {_TARGET: get_class}
