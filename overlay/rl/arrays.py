"""Rows of tokens as float64 arrays, from lists, numpy arrays or torch tensors, and which tokens may be counted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

try:
    import numpy as np
except ImportError as error:
    raise ImportError("engine_overlay.rl.metrics needs numpy; pip install 'engine-overlay[rl]'") from error


def array(values: Any, name: str = "values") -> np.ndarray:
    """``values`` as a float64 array of shape (N, T): N sequences of T generated tokens.

    Takes a numpy array, a torch tensor on any device and of any type (known by its ``detach``, torch is not imported),
    or nested lists. One row of T numbers is taken as N = 1. Raises ValueError when the shape is another one.
    """
    if hasattr(values, "detach"):
        # bfloat16 has no numpy type, so the tensor is widened first.
        values = values.detach().cpu().double().numpy()
    try:
        result = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} is not a rectangle of numbers; pad ragged rows with metrics.pad(rows)") from error
    if result.ndim == 1:
        result = result[None, :]
    if result.ndim != 2:
        raise ValueError(f"{name} has shape {result.shape}; (sequences, tokens) is wanted")
    return result


def vector(values: Any, length: int, name: str) -> np.ndarray:
    """One float64 number per sequence, shape (length,). Raises ValueError for another length."""
    if hasattr(values, "detach"):
        values = values.detach().cpu().double().numpy()
    result = np.asarray(values, dtype=np.float64)
    if result.shape != (length,):
        raise ValueError(f"{name} has shape {result.shape}; one number for each of the {length} sequences is wanted")
    return result


def mask_of(mask: Any, shape: tuple[int, int]) -> np.ndarray:
    """``mask`` as booleans of ``shape``; all true for None. Raises ValueError for another shape or values but 0, 1."""
    if mask is None:
        return np.ones(shape, dtype=bool)
    result = array(mask, "mask")
    if result.shape != shape:
        raise ValueError(f"mask has shape {result.shape}, the log-probabilities have {shape}")
    if not np.isin(result, (0.0, 1.0)).all():
        raise ValueError("mask holds something other than 0 and 1")
    return result.astype(bool)


def pad(rows: Sequence[Sequence[float]], fill: float = 0.0) -> tuple[np.ndarray, np.ndarray]:
    """Ragged rows as (values, mask), both of shape (N, longest row); masked places hold ``fill``."""
    width = max((len(row) for row in rows), default=0)
    values = np.full((len(rows), width), fill, dtype=np.float64)
    mask = np.zeros((len(rows), width), dtype=bool)
    for i, row in enumerate(rows):
        values[i, : len(row)] = row
        mask[i, : len(row)] = True
    return values, mask


def like(original: Any, result: np.ndarray) -> Any:
    """``result`` as a torch tensor of ``original``'s type and device when ``original`` is one, else as it is."""
    return original.new_tensor(result) if hasattr(original, "new_tensor") else result


@dataclass(frozen=True, slots=True)
class LogRatio:
    """Per token log pi_new(a_t) - log pi_old(a_t), natural logarithm, and what could not be compared.

    ``d``: (N, T), 0 where not kept. ``kept``: (N, T), in the mask and finite on both sides; only these enter a mean.
    ``dropped_by_new``, ``dropped_by_old``: tokens in the mask to which only that side gives no probability (-inf), as a
    top-k or top-p filter does; ``dropped_by_both``; ``not_a_number``: NaN or +inf on a side.
    """

    d: np.ndarray
    kept: np.ndarray
    dropped_by_new: int
    dropped_by_old: int
    dropped_by_both: int
    not_a_number: int


def log_ratio(new: Any, old: Any, mask: Any = None) -> LogRatio:
    """Compare log-probabilities (nats) of the same tokens: ``new`` by the trainer, ``old`` by the engine; both (N, T).

    ``mask``: (N, T), 1 for generated tokens. Raises ValueError when the shapes differ.
    """
    a, b = array(new, "new"), array(old, "old")
    if a.shape != b.shape:
        raise ValueError(f"new has shape {a.shape}, old has {b.shape}")
    wanted = mask_of(mask, a.shape)
    odd = wanted & (np.isnan(a) | np.isnan(b) | np.isposinf(a) | np.isposinf(b))
    gone_a, gone_b = wanted & ~odd & np.isneginf(a), wanted & ~odd & np.isneginf(b)
    kept = wanted & ~odd & ~gone_a & ~gone_b
    d = np.subtract(a, b, where=kept, out=np.zeros_like(a))
    return LogRatio(
        d=d,
        kept=kept,
        dropped_by_new=int((gone_a & ~gone_b).sum()),
        dropped_by_old=int((gone_b & ~gone_a).sum()),
        dropped_by_both=int((gone_a & gone_b).sum()),
        not_a_number=int(odd.sum()),
    )


def mean(values: np.ndarray, kept: np.ndarray, aggregate: str = "token") -> float:
    """Mean of (N, T) values over kept tokens; NaN when there is none.

    ``token``: every token counts the same. ``sequence``: mean within each sequence, then over the sequences that have
    a kept token (the convention of GRPO and PipelineRL).
    """
    if aggregate not in ("token", "sequence"):
        raise ValueError(f'aggregate is "{aggregate}"; "token" or "sequence" is wanted')
    counts = kept.sum(axis=1)
    if not counts.any():
        return float("nan")
    if aggregate == "token":
        return float(values[kept].mean())
    sums = np.where(kept, values, 0.0).sum(axis=1)
    have = counts > 0
    return float((sums[have] / counts[have]).mean())
