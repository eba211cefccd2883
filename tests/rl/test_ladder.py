"""What a toggle's numbers are called, and in which order."""

from __future__ import annotations

import math

import pytest

from engine_overlay.rl import ladder, metrics

MODE = ladder.STEPS[0]


def numbers(size: float, error: float = 0.0, **more: float) -> dict[str, float]:
    return {"mean_abs_log_ratio": size, "mean_abs_log_ratio_error": error, "dropped_by_trainer": 0} | more


def test_layers_come_in_their_order() -> None:
    layers = [ladder.LAYERS.index(step.layer) for step in ladder.STEPS]
    assert layers == sorted(layers)
    assert ladder.NAMES == ("mode", "caching", "scheduling", "head", "batch-invariance")


def test_a_toggle_that_removes_the_gap_is_its_cause() -> None:
    found = ladder.judge(MODE, numbers(0.5, 0.01), numbers(5e-6, 1e-7))
    assert (found.status, found.layer) == ("cause", "semantic")
    assert "100%" in found.said and "processed_logprobs" in found.advice


@pytest.mark.parametrize(
    ("before", "after", "status"),
    [
        ((0.05, 0.01), (0.04, 0.01), "no effect"),  # within noise
        ((0.050, 0.0), (0.047, 0.0), "no effect"),  # less than a tenth
        ((6e-6, 0.0), (4e-6, 0.0), "no effect"),  # nothing that anyone could mend
        ((0.05, 0.001), (0.03, 0.001), "cause"),
        ((0.03, 0.001), (0.05, 0.001), "worse"),
        ((math.nan, math.nan), (0.05, 0.001), "not measured"),
    ],
)
def test_noise_is_no_cause(before: tuple, after: tuple, status: str) -> None:
    assert ladder.judge(MODE, numbers(*before), numbers(*after)).status == status


def test_a_setting_that_the_release_ignored_is_no_evidence() -> None:
    head = ladder.STEPS[3]
    ignored = ladder.judge(head, numbers(0.05), numbers(0.05), {"head_dtype": "bfloat16"})
    assert ignored.status == "not possible" and "stayed bfloat16" in ignored.said
    assert ladder.judge(head, numbers(0.05), numbers(0.05), {"head_dtype": "float32"}).status == "no effect"
    assert ladder.judge(head, numbers(0.05), numbers(0.01), {"head_dtype": "bfloat16"}).status == "cause"


def test_what_is_so_already_is_not_toggled() -> None:
    assert MODE.superfluous({"logprobs_mode": "processed_logprobs"})
    assert MODE.superfluous({"logprobs_mode": "raw_logprobs"}) is None
    invariance = ladder.STEPS[-1]
    assert "CPU" in invariance.superfluous({"batch_invariant": False, "device": "cpu"})
    assert invariance.superfluous({"batch_invariant": False, "device": "cuda"}) is None


def readings(processed: float, temperature: float, raw: float) -> dict[str, dict[str, float]]:
    return {"processed": numbers(processed), "temperature": numbers(temperature), "raw": numbers(raw)}


def test_raw_numbers_are_recognised() -> None:
    found = ladder.semantics(readings(0.5, 0.4, 1e-6), "processed", True)
    assert found.status == "cause" and "are raw" in found.said and "--logprobs-mode" in found.advice


def test_a_trainer_with_the_temperature_only_is_told_of_the_filters() -> None:
    found = ladder.semantics(readings(1e-6, 0.12, 0.5), "temperature", True)
    assert found.status == "cause" and "top_p=1" in found.advice


def test_equal_meanings_are_no_cause() -> None:
    assert ladder.semantics(readings(0.01, 0.4, 0.5), "processed", True).status == "no effect"
    # Without top-p and top-k both readings are the same, so neither is blamed.
    assert ladder.semantics(readings(1.1e-6, 1e-6, 0.5), "processed", False).status == "no effect"


def test_the_remainder_is_named_and_weighted() -> None:
    assert ladder.remainder(numbers(5e-6), {}).status == "no effect"
    found = ladder.remainder(numbers(0.05), {"dtype": "bfloat16"})
    assert found.status == "cause" and "bfloat16" in found.said and "truncated_weights" in found.advice


def test_the_update_is_apart_from_the_backend() -> None:
    same = ladder.objective(None, None)
    assert (same.layer, same.status) == ("objective/staleness", "not measured")
    found = ladder.objective(numbers(0.05), numbers(0.2, clip_rate_ppo=0.3))
    assert found.status == "cause" and "0.2" in found.said and "metrics.split" in found.advice
    assert ladder.objective(numbers(0.05), numbers(0.0, clip_rate_ppo=0.0)).status == "no effect"
    assert ladder.objective(None, None, ["3", "4"]).name == "staleness"


def test_the_numbers_that_are_read_are_those_that_are_made() -> None:
    made = metrics.compare([[0.0]], [[0.0]])
    assert {"mean_abs_log_ratio", "mean_abs_log_ratio_error", "dropped_by_trainer", "clip_rate_ppo"} <= set(made)
