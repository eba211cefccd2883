"""What remains between engine and trainer is corrected apart from the policy's own update.

Three log-probabilities of one token, at processed-logits semantics: *behaviour* (the engine, when it sampled), *old*
(the trainer with the same weights) and *new* (the trainer with the weights it optimises). Then
log new/behaviour = log old/behaviour (backend mismatch) + log new/old (policy update). The clip of PPO belongs to the
second; the first is an importance weight that is truncated (Ionides 2008; Yao et al. 2025, "Your efficient RL
framework secretly brings you off-policy RL training") or masked (IcePop, arXiv:2510.18855).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from engine_overlay.rl.arrays import LogRatio, array, like, log_ratio, mask_of


@dataclass(frozen=True, slots=True)
class Split:
    """``mismatch`` = old against behaviour, ``update`` = new against old, ``total`` = new against behaviour.

    All are kept on the same tokens, so that mismatch.d + update.d == total.d.
    """

    mismatch: LogRatio
    update: LogRatio
    total: LogRatio


def split(behaviour: Any, old: Any, new: Any, mask: Any = None) -> Split:
    """Take the ratio apart; arguments (N, T) in nats. Raises ValueError when shapes differ."""
    parts = [log_ratio(old, behaviour, mask), log_ratio(new, old, mask), log_ratio(new, behaviour, mask)]
    common = parts[0].kept & parts[1].kept & parts[2].kept
    same = [
        LogRatio(
            np.where(common, part.d, 0.0), common,
            part.dropped_by_new, part.dropped_by_old, part.dropped_by_both, part.not_a_number,
        )
        for part in parts
    ]  # fmt: skip
    return Split(*same)


def truncated_weights(old: Any, behaviour: Any, mask: Any = None, *, cap: float = 2.0, level: str = "token") -> Any:
    """Truncated importance sampling: w_t = min(exp(log old - log behaviour), cap); multiply the loss of token t by it.

    ``level="token"``: per token. ``"sequence"``: min(exp(sum over the sequence), cap) on each of its tokens.
    Shape (N, T), no unit, constants (no gradient), 0 where masked or where old gives no probability, 1 where only the
    engine's number is missing. A torch tensor in ``old`` gives one back. Raises ValueError for cap <= 0.
    """
    if not cap > 0:
        raise ValueError(f"cap is {cap}; it is the largest weight and must be above 0")
    ratio = log_ratio(old, behaviour, mask)
    raw = _weights(ratio, level)
    return like(old, _edges(np.minimum(raw, cap), old, behaviour, mask, ratio))


def masked_weights(
    old: Any, behaviour: Any, mask: Any = None, *, low: float = 0.5, high: float = 2.0, level: str = "token"
) -> Any:
    """Masked importance sampling: the ratio where it lies in [low, high], and 0 (no gradient at all) elsewhere.

    Shapes and edges as :func:`truncated_weights`. Raises ValueError unless 0 <= low <= high.
    """
    if not 0 <= low <= high:
        raise ValueError(f"low is {low} and high is {high}; 0 <= low <= high is wanted")
    ratio = log_ratio(old, behaviour, mask)
    raw = _weights(ratio, level)
    return like(old, _edges(np.where((raw >= low) & (raw <= high), raw, 0.0), old, behaviour, mask, ratio))


def clipped_weights(
    old: Any, behaviour: Any, mask: Any = None, *, low: float = 0.0, high: float = 2.0, level: str = "token"
) -> Any:
    """Clipped importance weights: the ratio moved into [low, high], as V-trace (arXiv:1802.01561) and CISPO
    (arXiv:2506.13585) do. Shapes, edges and errors as :func:`masked_weights`."""
    if not 0 <= low <= high:
        raise ValueError(f"low is {low} and high is {high}; 0 <= low <= high is wanted")
    ratio = log_ratio(old, behaviour, mask)
    return like(old, _edges(np.clip(_weights(ratio, level), low, high), old, behaviour, mask, ratio))


def _weights(ratio: LogRatio, level: str) -> np.ndarray:
    with np.errstate(over="ignore"):
        if level == "token":
            return np.exp(ratio.d)
        if level == "sequence":
            sums = ratio.d.sum(axis=1, keepdims=True)
            return np.broadcast_to(np.exp(sums), ratio.d.shape)
    raise ValueError(f'level is "{level}"; "token" or "sequence" is wanted')


def _edges(weights: np.ndarray, old: Any, behaviour: Any, mask: Any, ratio: LogRatio) -> np.ndarray:
    """Tokens that have no ratio: the engine's number alone missing leaves the token as it is, all else takes it out."""
    a, b = array(old), array(behaviour)
    alone = mask_of(mask, a.shape) & np.isfinite(a) & ~np.isfinite(b)
    return np.where(ratio.kept, weights, np.where(alone, 1.0, 0.0))
