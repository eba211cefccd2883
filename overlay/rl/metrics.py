"""How far a trainer's log-probabilities are from the engine's: ratio, KL, clip rate, ESS, entropy. Needs numpy.

Conventions. Shapes are (N, T): N sequences, T generated tokens, padded, with a mask. Log-probabilities are natural
(nats) and of the distribution that was sampled from (after temperature, penalties, top-k, top-p), on both sides.
``old`` is the engine at rollout time, ``new`` the trainer; d = new - old, r = exp(d). Tokens without a finite number on
both sides are counted (:class:`LogRatio`) and are in no mean. Means are over tokens; ``aggregate="sequence"`` takes the
mean within each sequence first (GRPO, PipelineRL). A mean of nothing is NaN.

Sources: PPO arXiv:1707.06347, GRPO arXiv:2402.03300, GSPO arXiv:2507.18071, PipelineRL arXiv:2509.19128; k1 and k3:
Schulman 2020, "Approximating KL divergence"; ESS: Kish 1965.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from engine_overlay.rl.arrays import LogRatio, array, log_ratio, mask_of, mean, pad, vector
from engine_overlay.rl.correction import Split, clipped_weights, masked_weights, split, truncated_weights

__all__ = [
    "LogRatio", "Split", "by_position", "clamp_log_ratio_new_old_indicator", "clip_active", "clip_rate_gspo",
    "clip_rate_reinforce", "clipped_weights", "compare", "entropy", "ess", "ess_sequences", "ess_tokens", "kl_k1",
    "kl_k3", "log_ratio", "masked_weights", "pad", "ratio", "sequence_log_ratio", "split", "truncated_weights",
]  # fmt: skip

QUANTILES = (0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99)


def ratio(pair: LogRatio, aggregate: str = "token") -> float:
    """ratio_new_old = mean(exp(d)); 1 when both sides agree. No unit."""
    return mean(_exp(pair.d), pair.kept, aggregate)


def kl_k1(pair: LogRatio, aggregate: str = "token") -> float:
    """k1 = mean(-d), nats: estimates KL(old || new) from samples of old; may be negative, which shows an offset."""
    return mean(-pair.d, pair.kept, aggregate)


def kl_k3(pair: LogRatio, aggregate: str = "token") -> float:
    """k3 = mean(exp(d) - 1 - d), nats: estimates the same, is never negative and has less variance."""
    with np.errstate(over="ignore"):
        # expm1 keeps the digits that exp(d) - 1 loses for small d; rounding must not make it negative.
        return mean(np.maximum(np.expm1(pair.d) - pair.d, 0.0), pair.kept, aggregate)


def clamp_log_ratio_new_old_indicator(
    pair: LogRatio, low: float = 0.2, high: float = 0.2, aggregate: str = "token"
) -> float:
    """Clip rate of PPO and GRPO: share of tokens whose r lies outside [1 - low, 1 + high], whatever the advantage."""
    _positive(low, high)
    r = _exp(pair.d)
    return mean(((r < 1 - low) | (r > 1 + high)).astype(float), pair.kept, aggregate)


def clip_active(
    pair: LogRatio, advantages: Any, low: float = 0.2, high: float = 0.2, aggregate: str = "token"
) -> float:
    """Share of tokens whose gradient PPO's min() removes: r > 1 + high with A > 0, or r < 1 - low with A < 0.

    ``advantages``: (N,) one per sequence or (N, T).
    """
    _positive(low, high)
    a = np.asarray(advantages.detach().cpu().double() if hasattr(advantages, "detach") else advantages, np.float64)
    a = a[:, None] if a.shape == (len(pair.d),) else a
    if a.shape not in (pair.d.shape, (len(pair.d), 1)):
        raise ValueError(f"advantages have shape {a.shape}, the log-probabilities {pair.d.shape}")
    r = _exp(pair.d)
    return mean((((r > 1 + high) & (a > 0)) | ((r < 1 - low) & (a < 0))).astype(float), pair.kept, aggregate)


def clip_rate_reinforce(pair: LogRatio, high: float = 0.2, aggregate: str = "token") -> float:
    """One-sided clip rate of REINFORCE with a truncated ratio: share of tokens with r > 1 + high."""
    _positive(0.0, high)
    return mean((_exp(pair.d) > 1 + high).astype(float), pair.kept, aggregate)


def sequence_log_ratio(pair: LogRatio, *, normalised: bool = True) -> np.ndarray:
    """Per sequence (1/n) sum_t d_t (GSPO's log s_i), or sum_t d_t when not normalised; shape (N,), nats.

    n counts the kept tokens; NaN for a sequence that has none.
    """
    n = pair.kept.sum(axis=1)
    sums = np.where(pair.kept, pair.d, 0.0).sum(axis=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(n > 0, sums / np.maximum(n, 1) if normalised else sums, np.nan)


def clip_rate_gspo(pair: LogRatio, low: float = 3e-4, high: float = 4e-4) -> float:
    """Clip rate of GSPO: share of sequences whose s_i = exp(mean of d) lies outside [1 - low, 1 + high].

    The defaults are the paper's; they are small because s_i is a mean over the whole sequence.
    """
    _positive(low, high)
    s = _exp(_some(sequence_log_ratio(pair)))
    return float(((s < 1 - low) | (s > 1 + high)).mean()) if len(s) else float("nan")


def ess(log_weights: Any) -> float:
    """Effective sample size as a share: (sum w)^2 / (n sum w^2), in [1/n, 1]; n finite log-weights (nats), any shape.

    Computed with logarithms, so that sums over long sequences neither overflow nor vanish.
    """
    values = np.asarray(log_weights, dtype=np.float64).ravel()
    if not len(values):
        return float("nan")
    if not np.isfinite(values).all():
        raise ValueError("a log-weight is not finite; leave tokens without a probability out first")
    # Any shift cancels; the largest weight becomes 1.
    w = np.exp(values - values.max())
    return float(min(w.sum() ** 2 / (len(w) * (w * w).sum()), 1.0))


def ess_tokens(pair: LogRatio) -> float:
    """ESS over tokens, w = r_t."""
    return ess(pair.d[pair.kept])


def ess_sequences(pair: LogRatio, *, normalised: bool = False) -> float:
    """ESS over sequences: w_i = exp(sum of d), or GSPO's s_i when normalised."""
    return ess(_some(sequence_log_ratio(pair, normalised=normalised)))


def entropy(log_probabilities: Any, mask: Any = None, aggregate: str = "token") -> float:
    """Monte-Carlo entropy mean(-log pi(a_t)) in nats, over finite entries; (N, T). Compare engine with trainer."""
    values = array(log_probabilities)
    kept = mask_of(mask, values.shape) & np.isfinite(values)
    return mean(np.where(kept, -values, 0.0), kept, aggregate)


def by_position(pair: LogRatio) -> dict[str, np.ndarray]:
    """Over sequences, for each token position t: ``tokens``, ``ratio`` (mean r), ``abs_log_ratio``; shape (T,).

    NaN where no token is kept.
    """
    n = pair.kept.sum(axis=0)
    some = np.maximum(n, 1)
    r = np.where(pair.kept, _exp(pair.d), 0.0).sum(axis=0) / some
    a = np.where(pair.kept, np.abs(pair.d), 0.0).sum(axis=0) / some
    return {"tokens": n, "ratio": np.where(n > 0, r, np.nan), "abs_log_ratio": np.where(n > 0, a, np.nan)}


def compare(
    new: Any,
    old: Any,
    mask: Any = None,
    *,
    clip: tuple[float, float] = (0.2, 0.2),
    gspo_clip: tuple[float, float] = (3e-4, 4e-4),
    rewards: Any = None,
    exact_entropy: Any = None,
    aggregate: str = "token",
) -> dict[str, Any]:
    """All numbers of one run, as plain floats and integers, named as in the functions above.

    ``rewards``: (N,), their mean is ``reward``. ``exact_entropy``: (N, T) in nats, as the trainer computed it from its
    logits. ``clip`` and ``gspo_clip``: (low, high). Raises ValueError when shapes do not fit.
    """
    pair = log_ratio(new, old, mask)
    kept = pair.d[pair.kept]
    r = _exp(kept)
    sequences = _some(sequence_log_ratio(pair))
    numbers: dict[str, Any] = {
        "sequences": len(pair.d),
        "tokens": int(mask_of(mask, pair.d.shape).sum()),
        "tokens_compared": int(pair.kept.sum()),
        "dropped_by_trainer": pair.dropped_by_new,
        "dropped_by_engine": pair.dropped_by_old,
        "dropped_by_both": pair.dropped_by_both,
        "not_a_number": pair.not_a_number,
        "mean_abs_log_ratio": mean(np.abs(pair.d), pair.kept, aggregate),
        "mean_abs_log_ratio_error": standard_error(pair),
        "max_abs_log_ratio": float(np.abs(kept).max()) if len(kept) else float("nan"),
        "p99_abs_log_ratio": float(np.quantile(np.abs(kept), 0.99)) if len(kept) else float("nan"),
        "ratio_new_old": ratio(pair, aggregate),
        "ratio_quantiles": dict(
            zip(map(str, QUANTILES), np.quantile(r, QUANTILES).tolist() if len(r) else [], strict=False)
        ),
        "kl_new_old_k1": kl_k1(pair, aggregate),
        "kl_new_old_k3": kl_k3(pair, aggregate),
        "clamp_log_ratio_new_old_indicator": clamp_log_ratio_new_old_indicator(pair, *clip, aggregate),
        "clip_rate_ppo": clamp_log_ratio_new_old_indicator(pair, *clip),
        "clip_rate_grpo": clamp_log_ratio_new_old_indicator(pair, *clip, "sequence"),
        "clip_rate_gspo": clip_rate_gspo(pair, *gspo_clip),
        "ess_tokens": ess_tokens(pair),
        "ess_sequences": ess_sequences(pair),
        "ess_gspo": ess_sequences(pair, normalised=True),
        "sequence_ratio_mean": float(_exp(sequences).mean()) if len(sequences) else float("nan"),
        "entropy_engine": entropy(old, mask, aggregate),
        "entropy_trainer": entropy(new, mask, aggregate),
    }
    if exact_entropy is not None:
        exact = array(exact_entropy, "exact_entropy")
        numbers["entropy"] = mean(exact, mask_of(mask, exact.shape), aggregate)
    if rewards is not None:
        numbers["reward"] = float(vector(rewards, len(pair.d), "rewards").mean())
    return numbers


def standard_error(pair: LogRatio) -> float:
    """Standard error of the mean |d| over sequences; tokens of one sequence are not independent. 0 for one of them."""
    n = pair.kept.sum(axis=1)
    have = n > 0
    means = np.where(pair.kept, np.abs(pair.d), 0.0).sum(axis=1)[have] / n[have]
    return float(means.std(ddof=1) / np.sqrt(len(means))) if len(means) > 1 else 0.0


def _exp(values: np.ndarray) -> np.ndarray:
    with np.errstate(over="ignore"):
        return np.exp(values)


def _some(values: np.ndarray) -> np.ndarray:
    return values[~np.isnan(values)]


def _positive(low: float, high: float) -> None:
    if low < 0 or high < 0:
        raise ValueError(f"clip range is ({low}, {high}); both are distances from 1 and not negative")
