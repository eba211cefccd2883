"""What is toggled, one thing at a time and in this order, and what a difference means. Pure: runs nothing.

Three layers, excluded one after the other, as a lower one hides in the numbers of a higher: *semantic* (the engine's
number is of another distribution than the trainer's), *inference path* (the same distribution, computed differently)
and *objective/staleness* (the policies do differ: other weights, or a loss that takes the ratio for something else).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

SEMANTIC = "semantic"
PATH = "inference path"
OBJECTIVE = "objective/staleness"
LAYERS = (SEMANTIC, PATH, OBJECTIVE)

EXACT = 1e-4
"""Mean |log ratio| in nats below which nothing is left to explain: float32 rounding gives 1e-5."""


@dataclass(frozen=True, slots=True)
class Step:
    """A setting to toggle: engine arguments, environment variables (``{ENGINE}`` is replaced), and the advice."""

    name: str
    layer: str
    change: str
    setting: str
    value: Any
    arguments: Mapping[str, Any] = field(default_factory=dict)
    variables: Mapping[str, str] = field(default_factory=dict)
    advice: str = ""

    def superfluous(self, settings: Mapping[str, Any]) -> str | None:
        """Why there is nothing to toggle with these settings of the running engine, or None."""
        if settings.get(self.setting) == self.value:
            return "is so already"
        if self.setting == "batch_invariant" and settings.get("device") == "cpu":
            return "has no effect on a CPU"
        return None


STEPS = (
    Step(
        "mode", SEMANTIC, "log-probabilities of the distribution sampled from", "logprobs_mode", "processed_logprobs",
        arguments={"logprobs_mode": "processed_logprobs"},
        advice="start the engine with --logprobs-mode processed_logprobs: its default is the distribution before "
        "temperature, penalties, top-k and top-p",
    ),
    Step(
        "caching", PATH, "prefix caching off", "enable_prefix_caching", False,
        arguments={"enable_prefix_caching": False},
        advice="start the engine with --no-enable-prefix-caching, or clear the cache with each weight update",
    ),
    Step(
        "scheduling", PATH, "asynchronous scheduling off", "async_scheduling", False,
        arguments={"async_scheduling": False},
        advice="start the engine with --no-async-scheduling",
    ),
    Step(
        "head", PATH, "output head in float32", "head_dtype", "float32",
        arguments={"hf_overrides": {"head_dtype": "float32"}},
        advice="start the engine with --hf-overrides '{\"head_dtype\": \"float32\"}' (vllm 0.26, aphrodite-engine 0.22 "
        "and later), and compute the trainer's head in float32 too",
    ),
    Step(
        "batch invariance", PATH, "kernels that do not depend on the batch", "batch_invariant", True,
        variables={"{ENGINE}_BATCH_INVARIANT": "1"},
        advice="set VLLM_BATCH_INVARIANT=1 (Aphrodite: APHRODITE_BATCH_INVARIANT=1) if its price in speed is right",
    ),
)  # fmt: skip
NAMES = tuple(step.name.replace(" ", "-") for step in STEPS)


@dataclass(frozen=True, slots=True)
class Finding:
    """What one toggle did: ``status`` is cause, worse, no effect, already so, not possible or not measured.

    ``before`` and ``after``: mean |log ratio| in nats, None when it was not run.
    """

    layer: str
    name: str
    status: str
    said: str
    advice: str = ""
    before: float | None = None
    after: float | None = None


def judge(
    step: Step, before: Mapping[str, Any], after: Mapping[str, Any], settings: Mapping[str, Any] | None = None
) -> Finding:
    """Whether a toggle moved the mean |log ratio| by more than twice its standard error and a tenth of it.

    ``settings``: of the engine after the toggle, where they are known; a release may take an argument and ignore it.
    """
    a, b = before["mean_abs_log_ratio"], after["mean_abs_log_ratio"]
    if math.isnan(a) or math.isnan(b):
        return Finding(step.layer, step.name, "not measured", "no token could be compared", "", a, b)
    noise = 2 * math.hypot(before["mean_abs_log_ratio_error"], after["mean_abs_log_ratio_error"])
    moved = a - b
    if abs(moved) > max(noise, 0.1 * max(a, b), EXACT / 10):
        if moved > 0:
            said = f"explains {moved / a:.0%} of the mean |log ratio|: {a:.2g} to {b:.2g}"
            return Finding(step.layer, step.name, "cause", said, step.advice, a, b)
        return Finding(step.layer, step.name, "worse", f"makes it larger: {a:.2g} to {b:.2g}", "", a, b)
    said = f"{a:.2g} to {b:.2g}, within noise ({noise:.1g}) or a tenth"
    if settings and step.setting in settings and settings[step.setting] not in (step.value, None):
        said += f"; {step.setting} stayed {settings[step.setting]}: this release ignores it, or something overrules it"
        return Finding(step.layer, step.name, "not possible", said, "", a, b)
    return Finding(step.layer, step.name, "no effect", said, "", a, b)


def semantics(by_trainer: Mapping[str, Mapping[str, Any]], used: str, filters: bool) -> Finding:
    """Which of the trainer's three readings (processed, temperature, raw) the engine's numbers fit best.

    ``by_trainer``: numbers of one run under each; ``used``: the reading that the trainer in question has.
    """
    fits = {name: numbers["mean_abs_log_ratio"] for name, numbers in by_trainer.items()}
    usable = {name: value for name, value in fits.items() if not math.isnan(value)}
    if not usable:
        return Finding(SEMANTIC, "meaning", "not measured", "no token could be compared")
    best = min(usable, key=usable.__getitem__)
    mine, least = fits[used], fits[best]
    listed = ", ".join(f"{name} {value:.2g}" for name, value in fits.items())
    clear = math.isnan(mine) or (mine > 2 * least and mine - least > EXACT)
    if best == used or not clear:
        return Finding(SEMANTIC, "meaning", "no effect", f"both sides mean {used} ({listed})", "", mine, mine)
    said = f"the engine's numbers are {best}, the trainer's {used} ({listed})"
    if best == "raw":
        advice = STEPS[0].advice
    elif filters and used == "temperature":
        advice = "the trainer must mask what top-p and top-k drop, or sample with top_p=1 and top_k=-1"
    else:
        advice = f"recompute {best} log-probabilities in the trainer"
    return Finding(SEMANTIC, "meaning", "cause", said, advice, mine, least)


def remainder(numbers: Mapping[str, Any], settings: Mapping[str, Any]) -> Finding:
    """What is left when everything was toggled."""
    left = numbers["mean_abs_log_ratio"]
    if math.isnan(left):
        return Finding(PATH, "remainder", "not measured", "no token could be compared")
    if left <= EXACT:
        said = f"nothing is left to explain: mean |log ratio| {left:.2g}"
        return Finding(PATH, "remainder", "no effect", said, "", left, left)
    said = (
        f"mean |log ratio| {left:.2g} stays: the engine ({settings.get('dtype', 'unknown type')}) and the trainer "
        f"round differently; {numbers['dropped_by_trainer']} tokens fall outside the trainer's own filter"
    )
    advice = (
        "keep the engine's numbers as behaviour policy, recompute the old policy on the trainer, and weight by "
        "metrics.truncated_weights; watch the ESS, not only the clip rate"
    )
    return Finding(PATH, "remainder", "cause", said, advice, left, left)


def objective(
    mismatch: Mapping[str, Any] | None, update: Mapping[str, Any] | None, versions: Sequence[str] = ()
) -> Finding:
    """The policies themselves: the update from old to new weights, apart from the mismatch of the backends."""
    if len(versions) > 1:
        said = f"tokens come from {len(versions)} weight versions ({', '.join(versions[:5])})"
        advice = "recompute the old policy for each version, or clear the cache with each update"
        return Finding(OBJECTIVE, "staleness", "cause", said, advice)
    if mismatch is None or update is None:
        said = "both sides have the same weights here; --new-model DIR takes the policy update apart"
        return Finding(OBJECTIVE, "policy update", "not measured", said)
    a, b = mismatch["mean_abs_log_ratio"], update["mean_abs_log_ratio"]
    said = (
        f"mean |log ratio| of the policy update is {b:.2g}, of the backends {a:.2g}; clip rate of the update alone "
        f"{update['clip_rate_ppo']:.2g}"
    )
    if b <= EXACT:
        return Finding(OBJECTIVE, "policy update", "no effect", said, "", a, b)
    advice = "clip on new against old by the trainer (metrics.split), not on new against the engine"
    return Finding(OBJECTIVE, "policy update", "cause", said, advice if a > EXACT else "", a, b)
