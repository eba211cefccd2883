"""The parity report: one HTML file with its plots inside, and the same numbers as strict JSON. Needs matplotlib."""

from __future__ import annotations

import base64
import html
import io
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from engine_overlay.rl import ladder, metrics

_COLOURS = ("#b2182b", "#2166ac")
_COLUMNS = (
    ("mean_abs_log_ratio", "mean |log ratio|"),
    ("mean_abs_log_ratio_error", "± (standard error)"),
    ("ratio_new_old", "ratio"),
    ("kl_new_old_k1", "KL k1"),
    ("kl_new_old_k3", "KL k3"),
    ("clip_rate_ppo", "clip PPO"),
    ("clip_rate_grpo", "clip GRPO"),
    ("clip_rate_gspo", "clip GSPO"),
    ("ess_tokens", "ESS tokens"),
    ("ess_sequences", "ESS sequences"),
    ("entropy_engine", "entropy, engine"),
    ("entropy", "entropy, exact"),
    ("reward", "reward"),
    ("dropped_by_trainer", "-inf at trainer"),
)
_STYLE = """
body{font:15px/1.5 system-ui,sans-serif;max-width:70rem;margin:2rem auto;padding:0 1rem;color:#222}
table{border-collapse:collapse;margin:1rem 0;display:block;overflow-x:auto}
td,th{border:1px solid #ccc;padding:.25rem .5rem;text-align:right;white-space:nowrap}
td.l,th.l{text-align:left;white-space:normal}th{background:#f3f3f3}img{max-width:100%}
.cause,.worse{background:#fde0dd}code{background:#f3f3f3;padding:0 .2rem}small{color:#555}
"""


def strict(value: Any) -> Any:
    """``value`` as JSON allows it: numbers that are not finite become null, arrays lists."""
    if isinstance(value, Mapping):
        return {str(key): strict(entry) for key, entry in value.items()}
    if isinstance(value, np.ndarray):
        return strict(value.tolist())
    if isinstance(value, (list, tuple)):
        return [strict(entry) for entry in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def write(data: Mapping[str, Any], out: Path) -> tuple[Path, Path]:
    """Write the report to ``out`` and the numbers beside it with the ending .json; return both paths.

    ``data``: ``title``, ``about`` (name to text), ``runs`` (each with ``name``, ``change``, ``numbers``, ``settings``
    and ``rows``: new, old, mask), ``findings`` (of :mod:`ladder`), ``sequences``. Raises OSError.
    """
    beside = out.with_suffix(".json")
    runs = [{key: run[key] for key in ("name", "change", "numbers", "settings", "readings")} for run in data["runs"]]
    positions = [metrics.by_position(metrics.log_ratio(*run["rows"])) for run in data["runs"]]
    plain = {
        "about": data["about"],
        "runs": [run | {"by_position": at} for run, at in zip(runs, positions, strict=True)],
        "findings": [_finding(entry) for entry in data["findings"]],
        "split": data.get("split"),
        "sequences": data["sequences"],
    }
    beside.write_text(json.dumps(strict(plain), indent=1, allow_nan=False) + "\n", encoding="utf-8")
    out.write_text(_page(data, positions), encoding="utf-8")
    return out, beside


def _finding(entry: ladder.Finding) -> dict[str, Any]:
    return {name: getattr(entry, name) for name in ladder.Finding.__dataclass_fields__}


def _page(data: Mapping[str, Any], positions: Sequence[Mapping[str, np.ndarray]]) -> str:
    runs = data["runs"]
    about = "".join(f"<tr><td class=l>{_(k)}</td><td class=l>{_(v)}</td></tr>" for k, v in data["about"].items())
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{_(data["title"])}</title><style>{_STYLE}</style></head><body>
<h1>{_(data["title"])}</h1>
<table>{about}</table>
<h2>What was found</h2>
<p>In this order: a later layer can only be read when the ones above it are clean.</p>
{_findings(data["findings"])}
<h2>One thing at a time</h2>
<p>Each row keeps the changes of the rows above it. log ratio = log π<sub>trainer</sub>(a<sub>t</sub>) −
log π<sub>engine</sub>(a<sub>t</sub>), in nats, per generated token.</p>
{_runs(runs)}
{_picture(_bars(runs), "mean absolute log ratio of each setting")}
<h2>Distribution and position</h2>
{_picture(_histogram(runs), "histogram of the log ratio")}
{_picture(_by_position(runs, positions), "ratio by position")}
<h2>Sequences</h2>
<p>Of the last row, the twelve that are farthest off; all of them, token by token, are in the JSON file.</p>
{_sequences(data["sequences"])}
{_split(data.get("split"))}
<h2>How to read it</h2>
<p><b>ratio</b> mean exp(log ratio), 1 when both agree. <b>k1</b> mean(−log ratio) shows an offset, <b>k3</b>
mean(r − 1 − log r) the size of the noise. <b>clip PPO</b> (<code>clamp_log_ratio_new_old_indicator</code>) share of
tokens outside the clip range, <b>GRPO</b> the same with the mean within each sequence first, <b>GSPO</b> share of
sequences by their mean log ratio. <b>ESS</b> (Σw)²/(nΣw²), 1 when all weigh the same. A token that the trainer's own
top-k or top-p drops has no log-probability there; it is counted and in no mean.</p>
</body></html>
"""


def _findings(findings: Sequence[ladder.Finding]) -> str:
    rows = [
        f"<tr class='{_(f.status.replace(' ', '-'))}'><td class=l>{_(f.layer)}</td><td class=l>{_(f.name)}</td>"
        f"<td class=l>{_(f.status)}</td><td class=l>{_(f.said)}</td><td class=l>{_(f.advice)}</td></tr>"
        for f in findings
    ]
    head = "".join(f"<th class=l>{name}</th>" for name in ("layer", "what", "result", "measured", "what to change"))
    return f"<table><tr>{head}</tr>{''.join(rows)}</table>"


def _runs(runs: Sequence[Mapping[str, Any]]) -> str:
    columns = [(key, title) for key, title in _COLUMNS if any(key in run["numbers"] for run in runs)]
    head = "<th class=l>setting</th>" + "".join(f"<th>{_(title)}</th>" for _key, title in columns)
    rows = []
    for run in runs:
        cells = "".join(f"<td>{number(run['numbers'].get(key))}</td>" for key, _title in columns)
        rows.append(f"<tr><td class=l>{_(run['change'])}</td>{cells}</tr>")
    quantiles = [f"<th>{q}</th>" for q in metrics.QUANTILES]
    lines = []
    for run in runs:
        values = run["numbers"]["ratio_quantiles"].values()
        cells = "".join(f"<td>{number(v)}</td>" for v in values)
        lines.append(f"<tr><td class=l>{_(run['change'])}</td>{cells}</tr>")
    return (
        f"<table><tr>{head}</tr>{''.join(rows)}</table>"
        f"<table><tr><th class=l>quantiles of the ratio</th>{''.join(quantiles)}</tr>{''.join(lines)}</table>"
    )


def _sequences(sequences: Sequence[Mapping[str, Any]]) -> str:
    def off(entry: Mapping[str, Any]) -> float:
        value = entry["mean_abs_log_ratio"]
        return -1.0 if value is None or math.isnan(value) else value

    names = [k for k in sequences[0] if k not in ("token_ids", "engine", "trainer", "log_ratio")] if sequences else []
    head = "".join(f"<th>{_(name.replace('_', ' '))}</th>" for name in names)
    rows = "".join(
        "<tr>" + "".join(f"<td>{number(entry[name])}</td>" for name in names) + "</tr>"
        for entry in sorted(sequences, key=off, reverse=True)[:12]
    )
    return f"<table><tr>{head}</tr>{rows}</table>"


def _split(split: Mapping[str, Any] | None) -> str:
    if not split:
        return ""
    names = ("mean_abs_log_ratio", "ratio_new_old", "kl_new_old_k1", "kl_new_old_k3", "clip_rate_ppo", "ess_tokens")
    head = "".join(f"<th>{name.replace('_', ' ')}</th>" for name in names)
    rows = "".join(
        f"<tr><td class=l>{_(part)}</td>{''.join(f'<td>{number(numbers[n])}</td>' for n in names)}</tr>"
        for part, numbers in split.items()
    )
    return f"<h2>Backends and policy update apart</h2><table><tr><th class=l>part</th>{head}</tr>{rows}</table>"


def _bars(runs: Sequence[Mapping[str, Any]]) -> Any:
    figure, axes = _axes(7, 0.5 + 0.5 * len(runs))
    values = [max(_number(run["numbers"]["mean_abs_log_ratio"]), 1e-9) for run in runs]
    errors = [_number(run["numbers"]["mean_abs_log_ratio_error"]) for run in runs]
    places = range(len(runs), 0, -1)
    axes.barh(list(places), values, xerr=errors, color=[_COLOURS[0], *[_COLOURS[1]] * (len(runs) - 1)], height=0.6)
    axes.set_yticks(list(places), [run["change"] for run in runs])
    axes.set_xscale("log")
    axes.set_xlabel("mean |log ratio|, nats")
    return figure


def _histogram(runs: Sequence[Mapping[str, Any]]) -> Any:
    figure, axes = _axes(7, 3)
    pairs = [metrics.log_ratio(*run["rows"]) for run in _ends(runs)]
    found = [pair.d[pair.kept] for pair in pairs]
    widest = max((float(np.abs(d).max()) for d in found if len(d)), default=1.0) or 1.0
    # Symmetric logarithmic bins: 1e-6 of float32 and 0.5 of a wrong meaning have to fit into one picture.
    edges = np.geomspace(min(1e-7, widest / 10), widest * 1.01, 60)
    bins = np.concatenate([-edges[::-1], edges])
    for run, d, colour in zip(_ends(runs), found, _COLOURS, strict=False):
        axes.hist(d, bins=bins, histtype="step", color=colour, label=run["change"])
    axes.set_xscale("symlog", linthresh=float(edges[0]))
    ticks = [10.0**n for n in range(-6, 3, 2) if 10.0**n <= widest * 3]
    axes.set_xticks([-t for t in reversed(ticks)] + ticks)
    axes.set_xlabel("log ratio, nats")
    axes.set_ylabel("tokens")
    axes.legend(frameon=False)
    return figure


def _by_position(runs: Sequence[Mapping[str, Any]], positions: Sequence[Mapping[str, np.ndarray]]) -> Any:
    figure, axes = _axes(7, 3)
    for run, at, colour in zip(_ends(runs), _ends(positions), _COLOURS, strict=False):
        axes.plot(at["ratio"], color=colour, label=run["change"])
    axes.axhline(1.0, color="#999", linewidth=0.8)
    axes.set_xlabel("position in the answer, tokens")
    axes.set_ylabel("mean ratio")
    axes.legend(frameon=False)
    return figure


def _ends(items: Sequence[Any]) -> list[Any]:
    """As it was and as it is in the end."""
    return [items[0], items[-1]] if len(items) > 1 else list(items)


def _axes(width: float, height: float) -> tuple[Any, Any]:
    # No pyplot: it keeps figures and chooses a window system.
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    axes = figure.subplots()
    axes.spines[["top", "right"]].set_visible(False)
    return figure, axes


def _picture(figure: Any, alt: str) -> str:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=110)
    return f'<p><img alt="{_(alt)}" src="data:image/png;base64,{base64.b64encode(buffer.getvalue()).decode()}"></p>'


def _number(value: float) -> float:
    return 0.0 if math.isnan(value) else value


def number(value: Any) -> str:
    """A cell: four digits, scientific when small."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return "–"
    if isinstance(value, float):
        return f"{value:.4g}" if value == 0 or abs(value) >= 1e-3 else f"{value:.1e}"
    return _(value)


def _(text: Any) -> str:
    return html.escape(str(text))
