"""Leave prefix caching off unless the user asked for it.

Symptom: after a weight update that keeps the cache, a new request with a known prompt reuses keys and values of
the old weights, silently: its log-probabilities are off by up to 2.97. ``prompt_logprobs`` of a cached prefix are
not computed.

Cause: ``enable_prefix_caching`` is None by default, and the engine resolves that to on for generation models.

Change: None becomes False while the engine arguments get their other defaults. ``--enable-prefix-caching``, a
config file or a keyword argument is left alone, and so is a scheduler of the user's choice that cannot do without
(Aphrodite's ``PhraseScheduler``).

Risk: a shared prefix is computed anew for each request.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from engine_overlay.engines import Engine
from engine_overlay.record import Finding, Outcome, Patch, Range, Target
from engine_overlay.serving.stand_in_model import defaulted

_TARGET = "engine.arg_utils:EngineArgs._set_default_chunked_prefill_and_prefix_caching_args"

PATCH = Patch(
    id="prefix_caching_off",
    engines={"vllm": Range("0.18.0", "0.33.0"), "aphrodite": Range("0.20.0", "0.24.1")},
    targets=(Target(path=_TARGET, bodies=("b402c702ccdd", "ec9ecce7a162", "4c4168aab855")),),
    reads=(Target(path="engine.arg_utils:EngineArgs.enable_prefix_caching", bodies=("d37bf5b7e464",)),),
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
    default_reason="prefix caching saves time wherever weights stand still",
    scope=("config",),
    native_alternative="--no-enable-prefix-caching",
    remove_when="the engine drops cached prefixes at every weight update, or does not cache them by default",
)


def needs_prefixes(scheduler_cls: Any) -> bool:
    """Whether a scheduler, a class or its dotted name, refuses to run without prefix caching."""
    name = scheduler_cls if isinstance(scheduler_cls, str) else getattr(scheduler_cls, "__name__", "")
    return name.rpartition(".")[2] == "PhraseScheduler"


def probe(engine: Engine) -> Finding:
    """Let engine arguments without a value get their default for a model that can cache prefixes."""
    found = defaulted(engine)[0].enable_prefix_caching
    return Finding(
        Outcome.ABSENT if found is False else Outcome.PRESENT, f"without a value enable_prefix_caching becomes {found}"
    )


def build(engine: Engine, originals: Mapping[str, Any]) -> Mapping[str, Any]:
    stock = originals[_TARGET]

    def with_prefix_caching_off(self: Any, *args: Any, **kwargs: Any) -> Any:
        if self.enable_prefix_caching is None and not needs_prefixes(self.scheduler_cls):
            self.enable_prefix_caching = False
        return stock(self, *args, **kwargs)

    return {_TARGET: with_prefix_caching_off}
