"""Each number against one computed by hand, and the identities that hold for all of them."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine_overlay.rl import metrics

INF = math.inf
# Two sequences, of three tokens and of one; d = ln 2, 0, -ln 2 | ln 4.
OLD = [[-1.0, -2.0, -1.0], [-3.0, 0.0, 0.0]]
NEW = [[-1.0 + math.log(2), -2.0, -1.0 - math.log(2)], [-3.0 + math.log(4), 0.0, 0.0]]
MASK = [[1, 1, 1], [1, 0, 0]]


@pytest.fixture
def pair() -> metrics.LogRatio:
    return metrics.log_ratio(NEW, OLD, MASK)


def test_ratio_is_the_mean_over_tokens_or_over_sequences(pair: metrics.LogRatio) -> None:
    assert metrics.ratio(pair) == pytest.approx((2 + 1 + 0.5 + 4) / 4)
    assert metrics.ratio(pair, "sequence") == pytest.approx(((2 + 1 + 0.5) / 3 + 4) / 2)


def test_k1_and_k3_are_schulmans(pair: metrics.LogRatio) -> None:
    assert metrics.kl_k1(pair) == pytest.approx(-math.log(4) / 4)
    k3 = (2 - 1 - math.log(2)) + 0 + (0.5 - 1 + math.log(2)) + (4 - 1 - math.log(4))
    assert metrics.kl_k3(pair) == pytest.approx(k3 / 4)


def test_k3_keeps_the_digits_of_small_differences() -> None:
    # exp(d) - 1 - d in plain float64 is 0 or noise of 1e-17 here.
    assert metrics.kl_k3(metrics.log_ratio([[1e-9]], [[0.0]])) == pytest.approx(5e-19, rel=0.5)


def test_clip_rates(pair: metrics.LogRatio) -> None:
    assert metrics.clamp_log_ratio_new_old_indicator(pair) == 3 / 4
    assert metrics.clamp_log_ratio_new_old_indicator(pair, 0.2, 1.0) == 2 / 4
    assert metrics.clamp_log_ratio_new_old_indicator(pair, aggregate="sequence") == pytest.approx((2 / 3 + 1) / 2)
    assert metrics.clip_rate_reinforce(pair) == 2 / 4
    # Two tokens up with A > 0; the one down has A > 0 too, so its gradient stays.
    assert metrics.clip_active(pair, [1.0, 1.0]) == 2 / 4
    assert metrics.clip_active(pair, [[-1.0, 0.0, -1.0], [-1.0, 0.0, 0.0]]) == 1 / 4


def test_the_ends_of_the_clip_range_are_inside() -> None:
    pair = metrics.log_ratio([[math.log(1.25), math.log(0.75)]], [[0.0, 0.0]])
    assert metrics.clamp_log_ratio_new_old_indicator(pair, 0.25, 0.2500001) == 0.0


def test_gspo_takes_the_mean_log_ratio_of_a_sequence(pair: metrics.LogRatio) -> None:
    assert metrics.sequence_log_ratio(pair) == pytest.approx([0.0, math.log(4)])
    assert metrics.sequence_log_ratio(pair, normalised=False) == pytest.approx([0.0, math.log(4)])
    assert metrics.clip_rate_gspo(pair) == 0.5
    longer = metrics.log_ratio([[0.1, 0.3]], [[0.0, 0.0]])
    assert np.exp(metrics.sequence_log_ratio(longer)) == pytest.approx([math.exp(0.2)])
    assert metrics.clip_rate_gspo(longer, 0.2, 0.2) == 1.0
    assert metrics.clip_rate_gspo(longer, 0.2, 0.25) == 0.0


def test_ess(pair: metrics.LogRatio) -> None:
    assert metrics.ess_tokens(pair) == pytest.approx(7.5**2 / (4 * (4 + 1 + 0.25 + 16)))
    assert metrics.ess_sequences(pair) == pytest.approx(5**2 / (2 * (1 + 16)))
    assert metrics.ess([0.0, -800.0, -800.0, -800.0]) == pytest.approx(1 / 4)
    assert metrics.ess([2000.0, 2000.0]) == 1.0
    with pytest.raises(ValueError, match="not finite"):
        metrics.ess([0.0, -INF])


def test_entropy_is_minus_the_mean_log_probability() -> None:
    assert metrics.entropy([[-1.0, -3.0, -100.0]], [[1, 1, 0]]) == 2.0
    assert metrics.entropy([[-1.0, -INF]]) == 1.0


def test_tokens_without_a_probability_are_counted_and_in_no_mean() -> None:
    new = [[-1.0, -INF, -1.0, -INF, math.nan, -1.0]]
    old = [[-1.0, -1.0, -INF, -INF, -1.0, INF]]
    found = metrics.compare(new, old)
    assert (found["tokens"], found["tokens_compared"]) == (6, 1)
    assert (found["dropped_by_trainer"], found["dropped_by_engine"], found["dropped_by_both"]) == (1, 1, 1)
    assert found["not_a_number"] == 2
    assert found["ratio_new_old"] == 1.0
    assert found["kl_new_old_k3"] == found["mean_abs_log_ratio"] == 0.0


def test_masked_tokens_may_hold_anything() -> None:
    found = metrics.compare([[-1.0, math.nan]], [[-1.0, -INF]], [[1, 0]])
    assert (found["tokens"], found["not_a_number"], found["dropped_by_engine"]) == (1, 0, 0)


def test_nothing_to_compare_is_not_a_number() -> None:
    found = metrics.compare([[-INF]], [[-1.0]], rewards=[3.0])
    for name in ("ratio_new_old", "kl_new_old_k1", "kl_new_old_k3", "clip_rate_gspo", "ess_tokens", "ess_sequences"):
        assert math.isnan(found[name]), name
    assert found["reward"] == 3.0


def test_compare_says_the_same_as_its_parts(pair: metrics.LogRatio) -> None:
    found = metrics.compare(NEW, OLD, MASK, rewards=[1.0, 0.0], exact_entropy=[[1.0, 2.0, 3.0], [6.0, 9.0, 9.0]])
    assert found["ratio_new_old"] == metrics.ratio(pair)
    assert found["clamp_log_ratio_new_old_indicator"] == found["clip_rate_ppo"] == 0.75
    assert found["clip_rate_grpo"] == pytest.approx((2 / 3 + 1) / 2)
    assert found["mean_abs_log_ratio"] == pytest.approx(math.log(2))
    assert found["max_abs_log_ratio"] == pytest.approx(math.log(4))
    assert (found["reward"], found["entropy"], found["entropy_engine"]) == (0.5, 3.0, 7 / 4)
    assert found["ratio_quantiles"]["0.5"] == pytest.approx(1.5)
    # Means of |d| per sequence: 2/3 ln 2 and 2 ln 2; their standard error is half their distance.
    assert found["mean_abs_log_ratio_error"] == pytest.approx(math.log(2) * 2 / 3)


def test_by_position(pair: metrics.LogRatio) -> None:
    found = metrics.by_position(pair)
    assert found["tokens"].tolist() == [2, 1, 1]
    assert found["ratio"] == pytest.approx([3.0, 1.0, 0.5])
    assert found["abs_log_ratio"] == pytest.approx([math.log(2) * 1.5, 0.0, math.log(2)])


def test_pad_makes_a_rectangle() -> None:
    values, mask = metrics.pad([[1.0], [2.0, 3.0], []])
    assert values.tolist() == [[1.0, 0.0], [2.0, 3.0], [0.0, 0.0]]
    assert mask.tolist() == [[True, False], [True, True], [False, False]]


def test_split_separates_the_backend_from_the_update() -> None:
    found = metrics.split([[-1.0, -1.0, -INF]], [[-1.5, -INF, -1.0]], [[-1.25, -1.0, -1.0]])
    assert found.mismatch.d.tolist() == [[-0.5, 0.0, 0.0]]
    assert found.update.d.tolist() == [[0.25, 0.0, 0.0]]
    assert found.total.d.tolist() == [[-0.25, 0.0, 0.0]]
    assert found.mismatch.kept.tolist() == found.total.kept.tolist() == [[True, False, False]]
    assert (found.mismatch.dropped_by_new, found.mismatch.dropped_by_old) == (1, 1)


def test_weights() -> None:
    assert metrics.truncated_weights(NEW, OLD, MASK) == pytest.approx(np.array([[2, 1, 0.5], [2, 0, 0]]))
    assert metrics.truncated_weights(NEW, OLD, MASK, cap=4.0)[1, 0] == pytest.approx(4.0)
    # exp(sum) of the first is 1, of the second 4.
    by_sequence = metrics.truncated_weights(NEW, OLD, MASK, cap=3.0, level="sequence")
    assert by_sequence == pytest.approx(np.array([[1, 1, 1], [3, 0, 0]]))
    assert metrics.masked_weights(NEW, OLD, MASK, low=0.6, high=3.0).tolist() == [[pytest.approx(2), 1, 0], [0, 0, 0]]
    assert metrics.clipped_weights(NEW, OLD, MASK, low=0.6, high=3.0) == pytest.approx(
        np.array([[2, 1, 0.6], [3, 0, 0]])
    )


def test_weights_of_tokens_without_a_probability() -> None:
    # The trainer cannot have sampled the first; the engine's number of the second is lost.
    assert metrics.truncated_weights([[-INF, -1.0, math.nan]], [[-1.0, -INF, -1.0]]).tolist() == [[0.0, 1.0, 0.0]]


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: metrics.log_ratio([[1.0]], [[1.0, 2.0]]), "shape"),
        (lambda: metrics.log_ratio([[1.0], [1.0, 2.0]], [[1.0], [1.0, 2.0]]), "pad"),
        (lambda: metrics.log_ratio([[[1.0]]], [[[1.0]]]), "sequences, tokens"),
        (lambda: metrics.log_ratio([[1.0]], [[1.0]], [[0.5]]), "0 and 1"),
        (lambda: metrics.log_ratio([[1.0]], [[1.0]], [[1, 1]]), "mask has shape"),
        (lambda: metrics.compare([[1.0]], [[1.0]], rewards=[1.0, 2.0]), "rewards"),
        (lambda: metrics.compare([[1.0]], [[1.0]], aggregate="batch"), "aggregate"),
        (lambda: metrics.compare([[1.0]], [[1.0]], clip=(-0.2, 0.2)), "clip range"),
        (lambda: metrics.clip_active(metrics.log_ratio([[1.0]], [[1.0]]), [1.0, 2.0]), "advantages"),
        (lambda: metrics.truncated_weights([[1.0]], [[1.0]], cap=0.0), "cap"),
        (lambda: metrics.masked_weights([[1.0]], [[1.0]], low=3.0), "low"),
        (lambda: metrics.clipped_weights([[1.0]], [[1.0]], level="batch"), "level"),
    ],
)
def test_what_does_not_fit_is_said(call, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        call()


LOGS = st.floats(-30, 0) | st.sampled_from([-INF, math.nan])


@st.composite
def batches(draw) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    shape = draw(st.tuples(st.integers(1, 5), st.integers(1, 6)))
    numbers = [draw(st.lists(LOGS, min_size=shape[0] * shape[1], max_size=shape[0] * shape[1])) for _ in range(2)]
    mask = draw(st.lists(st.booleans(), min_size=shape[0] * shape[1], max_size=shape[0] * shape[1]))
    return (*(np.array(n).reshape(shape) for n in numbers), np.array(mask).reshape(shape))


@given(batches())
def test_no_mean_is_ever_infinite_and_every_token_is_accounted_for(batch) -> None:
    found = metrics.compare(*batch)
    outside = ("dropped_by_trainer", "dropped_by_engine", "dropped_by_both", "not_a_number")
    assert found["tokens"] == found["tokens_compared"] + sum(found[name] for name in outside)
    for name, value in found.items():
        assert isinstance(value, dict) or not math.isinf(value), name
    if found["tokens_compared"]:
        n = found["tokens_compared"]
        assert found["kl_new_old_k3"] >= 0
        assert 1 / n - 1e-12 <= found["ess_tokens"] <= 1
        assert 0 < found["ess_sequences"] <= 1
        assert 0 <= found["clip_rate_gspo"] <= 1


@given(batches(), st.randoms(use_true_random=False))
def test_masked_places_and_the_order_of_sequences_do_not_matter(batch, random) -> None:
    new, old, mask = batch
    order = list(range(len(new)))
    random.shuffle(order)
    noise = np.where(mask, 0.0, 1234.5)
    with np.errstate(invalid="ignore"):
        other = metrics.compare((new + noise)[order], (old - noise)[order], mask[order])
    for name, value in metrics.compare(new, old, mask).items():
        if isinstance(value, dict):
            assert list(other[name].values()) == pytest.approx(list(value.values()))
        else:
            assert other[name] == pytest.approx(value, nan_ok=True), name


@given(st.lists(st.floats(-5, 5), min_size=1, max_size=20), st.floats(-3, 3))
def test_ess_knows_no_scale_and_k3_is_k1_plus_ratio_minus_one(d: list[float], shift: float) -> None:
    assert metrics.ess(np.array(d) + shift) == pytest.approx(metrics.ess(d))
    pair = metrics.log_ratio([d], [[0.0] * len(d)])
    assert metrics.kl_k3(pair) == pytest.approx(metrics.kl_k1(pair) + metrics.ratio(pair) - 1, abs=1e-9)


@given(batches(), st.floats(0.1, 10), st.sampled_from(["token", "sequence"]))
def test_weights_stay_in_their_range(batch, cap: float, level: str) -> None:
    new, old, mask = batch
    for weights in (
        metrics.truncated_weights(new, old, mask, cap=cap, level=level),
        metrics.masked_weights(new, old, mask, low=0.0, high=cap, level=level),
        metrics.clipped_weights(new, old, mask, low=0.0, high=cap, level=level),
    ):
        assert np.isfinite(weights).all()
        assert (weights >= 0).all()
        assert (weights <= max(cap, 1.0)).all()
        assert (weights[~mask] == 0).all()


@given(batches())
def test_the_parts_of_a_split_add_up(batch) -> None:
    behaviour, new, mask = batch
    old = np.where(np.isfinite(behaviour), behaviour * 0.5, behaviour)
    found = metrics.split(behaviour, old, new, mask)
    assert found.mismatch.d + found.update.d == pytest.approx(found.total.d)
