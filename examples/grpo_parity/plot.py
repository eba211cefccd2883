"""The curves of the three runs in one picture."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

_STYLE = {"reference": ("#222222", 3.5, "-"), "profile": ("#2166ac", 1.6, "-"), "stock": ("#b2182b", 1.6, "-")}
_CURVES = (
    ("ratio_new_old", "policy ratio (mean)", "linear"),
    ("kl_new_old_k3", "KL k3, nats", "log"),
    ("clamp_log_ratio_new_old_indicator", "clip rate, tokens", "linear"),
    ("entropy", "entropy, nats", "linear"),
    ("reward", "reward", "linear"),
    ("engine_to_trainer", "|log ratio| engine to trainer", "log"),
)


def draw(runs: Sequence[dict[str, Any]], out: Path) -> None:
    """Write ``out`` (a .png). One line a run, a mean over five steps."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 6), layout="constrained")
    grid = figure.subplots(2, 3)
    for axes, (key, title, scale) in zip(grid.flat, _CURVES, strict=True):
        for run in sorted(runs, key=lambda r: list(_STYLE).index(r["setting"])):
            colour, width, line = _STYLE[run["setting"]]
            values = smooth([step[key] for step in run["steps"]])
            axes.plot(values, line, color=colour, linewidth=width, label=run["setting"], alpha=0.9)
        axes.set_title(title, fontsize=10)
        axes.set_yscale(scale)
        if key == "kl_new_old_k3":
            # The first batch has no update behind it and would stretch the axis by ten decades.
            axes.set_ylim(bottom=1e-5)
        axes.set_xlabel("step", fontsize=8)
        axes.spines[["top", "right"]].set_visible(False)
    grid[0, 0].legend(frameon=False)
    objective = runs[0]["options"]["objective"].upper()
    figure.suptitle(f"{objective}, weights updated in flight; temperature 0.7, top-p 0.9, top-k 50", fontsize=11)
    figure.savefig(out, dpi=110)


def smooth(values: Sequence[float], width: int = 5) -> np.ndarray:
    """Trailing mean of up to ``width`` values; as long as ``values``."""
    sums = np.cumsum(np.concatenate([[0.0], np.asarray(values, dtype=float)]))
    ends = np.arange(1, len(values) + 1)
    starts = np.maximum(ends - width, 0)
    return (sums[ends] - sums[starts]) / (ends - starts)
