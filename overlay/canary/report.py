"""The report: one HTML file with its pictures inside. Without matplotlib it has no pictures."""

from __future__ import annotations

import base64
import html
import importlib.util
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from engine_overlay.canary import table

_STYLE = """
body{font:15px/1.5 system-ui,sans-serif;max-width:70rem;margin:2rem auto;padding:0 1rem;color:#222}
table{border-collapse:collapse;margin:1rem 0;display:block;overflow-x:auto}
td,th{border:1px solid #ccc;padding:.25rem .6rem;text-align:left;vertical-align:top}th{background:#f3f3f3}
img{max-width:100%}.FAULT,.WRONG{background:#fde0dd}.ok{background:#e5f5e0}.not{background:#fff7bc}
section{border-left:4px solid #b2182b;padding:.1rem 1rem;margin:1.5rem 0}
pre{background:#f6f6f6;padding:.5rem;white-space:pre-wrap;overflow-wrap:anywhere}dt{font-weight:600}
.verdict{font-size:1.2rem;padding:.5rem 1rem}
"""
_RED, _BLUE, _GREEN, _GREY = "#b2182b", "#2166ac", "#7fbf7b", "#d9d9d9"


def can_draw() -> bool:
    """Whether pictures can be made here."""
    return importlib.util.find_spec("matplotlib") is not None


def write(data: Mapping[str, Any], out: Path) -> None:
    """Write the report of a summary to ``out``. Raises OSError."""
    out.write_text(page(data), encoding="utf-8")


def page(data: Mapping[str, Any]) -> str:
    """The report as HTML."""
    kind = "FAULT" if data["faulty"] else "ok" if data["judged"] else "not"
    pictures = ""
    if can_draw():
        pictures = _picture(_checks(data["checks"]), "answers of each check")
        if data["latency"]:
            pictures += _picture(_latency(data["latency"]), "time to the first text, by streams at once")
    findings = "".join(map(_finding, data["findings"])) or "<p>None.</p>"
    stopped = f"<p class=FAULT>Stopped early: {_(data['stopped'])}</p>" if data["stopped"] else ""
    grids = "".join(_grid(one) for one in table.tables(data))
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>engine-overlay canary: {_(data["model"])}</title>
<style>{_STYLE}</style></head><body>
<h1>engine-overlay canary</h1>
<p class="verdict {kind}">{_(table.headline(data))}</p>{stopped}
{pictures}
<h2>Checks</h2>
{grids}
<h2>Findings</h2>
{findings}
<h2>How to read it</h2>
<p><b>faulty</b>: something is wrong with the answer whatever the model meant. <b>not judged</b>: the answer says
nothing about the check, as when a model calls no tool, does not think, or runs into a limit. Tags that an answer
quotes, or shows in code, are no faults. Times are those of this client, from the request on.</p>
</body></html>
"""


def _finding(row: Mapping[str, Any]) -> str:
    piece = f"<dt>text of the answer</dt><dd><pre>{_(row['piece'])}</pre></dd>" if row["piece"] else ""
    events = f"<dt>as it came</dt><dd><pre>{_(row['events'])}</pre></dd>" if row["events"] else ""
    return (
        f"<section><h3>{_(row['title'])}</h3><p>{_(table.where(row))} answers "
        f"({_(', '.join(row['questions'][:8]))})</p><dl><dt>seen</dt><dd>{_(row['said'])}</dd>{piece}{events}"
        f"<dt>asked</dt><dd>{_(row['asked'])}</dd><dt>why, probably</dt><dd>{_(row['why'])}</dd>"
        f"<dt>next</dt><dd>{_(row['step'])}</dd></dl></section>\n"
    )


def _grid(one: table.Table) -> str:
    head = "".join(f"<th>{_(name)}</th>" for name in one.head)
    rows = "".join(f"<tr>{''.join(map(_td, row))}</tr>\n" for row in one.rows)
    title = f"<h3>{_(one.title)}</h3>" if one.title else ""
    return f"{title}<table><tr>{head}</tr>\n{rows}</table>\n"


def _td(cell: str) -> str:
    marked = cell in ("ok", "FAULT", "not judged") or cell.startswith(("WRONG ", "ok, "))
    kind = cell.replace(",", " ").partition(" ")[0] if marked else ""
    return f"<td class='{_(kind)}'>{_(cell)}</td>"


def _checks(rows: Sequence[Mapping[str, Any]]) -> Any:
    """Bars: of each check the answers that were right, faulty, and not judged."""
    figure, axes = _figure(7, 0.45 * len(rows) + 1.2)
    names = [row["check"] for row in rows]
    parts = (
        ("right", _GREEN, [row["requests"] - row["faulty"] - row["unjudged"] for row in rows]),
        ("not judged", _GREY, [row["unjudged"] for row in rows]),
        ("faulty", _RED, [row["faulty"] for row in rows]),
    )
    left = [0] * len(rows)
    for label, colour, counts in parts:
        axes.barh(names, counts, left=left, color=colour, label=label)
        left = [a + b for a, b in zip(left, counts, strict=True)]
    axes.invert_yaxis()
    axes.set_xlabel("answers")
    axes.set_title("findings")
    axes.legend(loc="lower center", bbox_to_anchor=(0.5, -0.02 - 1.1 / (0.45 * len(rows) + 1.2)), ncol=3, frameon=False)
    return figure


def _latency(rows: Sequence[Mapping[str, Any]]) -> Any:
    """Each answer's time to its first text, by streams at once, with the median and the 95th percentile."""
    figure, axes = _figure(7, 3.2)
    for at, row in enumerate(rows):
        firsts = sorted(row["firsts"])
        spread = [at + 0.5 * (n / max(1, len(firsts) - 1) - 0.5) for n in range(len(firsts))]
        axes.plot(spread, [1000 * value for value in firsts], ".", color=_BLUE, alpha=0.5)
        for key, style in (("first_p50", "-"), ("first_p95", "--")):
            if row[key] is not None:
                label = f"{key[6:]}" if at == 0 else None
                axes.hlines(1000 * row[key], at - 0.35, at + 0.35, colors=_RED, linestyles=style, label=label)
    axes.set_xticks(range(len(rows)), [str(row["at_once"]) for row in rows])
    axes.set_ylim(bottom=0)
    axes.set_xlabel("streams at once")
    axes.set_ylabel("ms to the first text")
    axes.set_title("latency")
    if any(row["first_p50"] is not None for row in rows):
        axes.legend(frameon=False)
    return figure


def _figure(width: float, height: float) -> tuple[Any, Any]:
    from matplotlib.figure import Figure

    # Without pyplot, which looks for a screen and keeps every figure.
    figure = Figure(figsize=(width, height), dpi=110)
    axes = figure.subplots()
    axes.spines[["top", "right"]].set_visible(False)
    return figure, axes


def _picture(figure: Any, what: str) -> str:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", bbox_inches="tight")
    return f'<p><img alt="{_(what)}" src="data:image/png;base64,{base64.b64encode(buffer.getvalue()).decode()}"></p>'


def _(value: object) -> str:
    return html.escape(str(value))
