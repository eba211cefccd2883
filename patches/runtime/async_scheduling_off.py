"""Leave asynchronous scheduling off unless the user asked for it.

Symptom: training curves move against an engine that schedules step by step (V0): while a step runs the next one
is already scheduled, so that a pause for a weight update takes effect a step later.

Cause: ``async_scheduling`` is None by default, and the engine resolves that to on wherever executor and
speculative decoding allow it.

Change: None becomes False while the engine arguments get their other defaults. ``--async-scheduling``, a config
file or a keyword argument is left alone, and so is a scheduler of the user's choice that is an asynchronous one.

Risk: gaps between steps come back: less throughput. The CPU platform never schedules asynchronously.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

from engine_overlay.engines import Engine
from engine_overlay.record import Finding, Outcome, Patch, Range, Target
from engine_overlay.serving.stand_in_model import defaulted

# The last step at which a default can still be set before the configs are made of the arguments.
_TARGET = "engine.arg_utils:EngineArgs._set_default_chunked_prefill_and_prefix_caching_args"

PATCH = Patch(
    id="async_scheduling_off",
    engines={"vllm": Range("0.18.0", "0.33.0"), "aphrodite": Range("0.20.0", "0.24.1")},
    targets=(Target(path=_TARGET, bodies=("b402c702ccdd", "ec9ecce7a162", "4c4168aab855")),),
    reads=(
        Target(path="engine.arg_utils:EngineArgs.async_scheduling", bodies=("fa99bd6fd2fd",)),
        Target(path="config.scheduler:SchedulerConfig.async_scheduling", bodies=("55abe0b8d1c9", "3d4d10105cff")),
    ),
    upstream=(),
    relationship="different approach",
    introduced_in={"vllm": "0.18.0", "aphrodite": "0.20.0"},
    fixed_in={"vllm": None, "aphrodite": None},
    superseded_by=None,
    group=None,
    requires=(),
    conflicts=(),
    after=("prefix_caching_off",),
    default=False,
    default_reason="asynchronous scheduling is faster",
    scope=("config",),
    native_alternative="--no-async-scheduling",
    remove_when="the engine does not schedule asynchronously by default",
)


def is_asynchronous(engine: Engine, scheduler_cls: Any) -> bool:
    """Whether a scheduler of the user's, a class or its dotted name, is made for asynchronous scheduling."""
    if isinstance(scheduler_cls, str):
        module, _, name = scheduler_cls.rpartition(".")
        try:
            scheduler_cls = getattr(importlib.import_module(module), name)
        except (ImportError, AttributeError, ValueError):  # the engine says later what is wrong with it
            return False
    base = engine.module("v1.core.sched.async_scheduler").AsyncScheduler
    return isinstance(scheduler_cls, type) and issubclass(scheduler_cls, base)


def probe(engine: Engine) -> Finding:
    """Let engine arguments without a value get their defaults."""
    found = defaulted(engine)[0].async_scheduling
    means = "the engine switches it on where it can" if found is None else "the engine is told"
    return Finding(
        Outcome.ABSENT if found is False else Outcome.PRESENT, f"without a value async_scheduling is {found}: {means}"
    )


def build(engine: Engine, originals: Mapping[str, Any]) -> Mapping[str, Any]:
    stock = originals[_TARGET]

    def with_async_scheduling_off(self: Any, *args: Any, **kwargs: Any) -> Any:
        if self.async_scheduling is None and not (
            self.scheduler_cls is not None and is_asynchronous(engine, self.scheduler_cls)
        ):
            self.async_scheduling = False
        return stock(self, *args, **kwargs)

    return {_TARGET: with_async_scheduling_off}
