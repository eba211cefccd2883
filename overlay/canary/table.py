"""The summary for a terminal: tables by rich where one looks at it, plain text where it is piped."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

WIDTH = 110
"""Columns of plain text in which sentences are broken."""

_COLOURS = {"ok": "green", "FAULT": "bold red", "not judged": "yellow"}


@dataclass(frozen=True, slots=True)
class Table:
    title: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]


def tables(data: Mapping[str, Any]) -> Iterator[Table]:
    """The tables of a summary, in the order in which they are shown."""
    rows = []
    for row in data["checks"]:
        notes = [f"{times}x {kind}" for kind, times in row["kinds"].items()]
        notes += [f"{times}x {reason}" for reason, times in row["reasons"].items()]
        counts = [row["requests"], row["faulty"], row["unjudged"]]
        rows.append([row["check"], row["title"], *map(str, counts), row["result"], "; ".join(notes)])
    yield Table("", ("check", "what was asked", "asked", "faulty", "not judged", "result", "what"), rows)
    if data["types"]:
        cells = [[row["type"], _cell(row["streaming"]), _cell(row["full"])] for row in data["types"]]
        yield Table("types of arguments", ("type", "streaming", "full"), cells)
    if data["latency"]:
        head = ("at once", "answers", "first text p50", "p95", "between p50", "p99", "answer p50", "tokens/s")
        yield Table("latency", head, [_latency(row) for row in data["latency"]])


def headline(data: Mapping[str, Any]) -> str:
    """One line: how many requests, how many of them faulty."""
    where = f"{data['model']} at {data['url']}" + (f" ({data['engine']})" if data["engine"] else "")
    if data["overlay"]:
        where += ", with engine-overlay in it"
    faulty = f"{data['faulty']} faulty" if data["faulty"] else "none faulty"
    unjudged = data["requests"] - data["judged"]
    more = f", {unjudged} not judged" if unjudged else ""
    return f"{where}: {data['requests']} requests in {data['seconds']:.0f} s, {faulty}{more}"


def findings(data: Mapping[str, Any]) -> Iterator[list[tuple[str, str]]]:
    """Each finding as lines of (label, text); the first label is empty."""
    for number, row in enumerate(data["findings"], 1):
        way = "streaming" if row["streamed"] else "full"
        lines = [("", f"{number}. {row['title']} ({row['check']}, {way}: {row['times']} of {row['of']})")]
        lines += [("seen", row["said"])]
        if row["piece"]:
            lines.append(("text", repr(row["piece"])))
        lines += [("event" if n == 0 else "", _short(line)) for n, line in enumerate(row["events"].splitlines()[:4])]
        lines += [("why", row["why"]), ("next", row["step"])]
        yield lines


def plain(data: Mapping[str, Any]) -> str:
    """All of it as text without colours."""
    parts = [headline(data), ""]
    for table in tables(data):
        parts += [table.title] if table.title else []
        parts += [*_plain_table(table), ""]
    for lines in findings(data):
        for label, text in lines:
            if label == "" and text[:1].isdigit():
                parts.append(text)
            else:
                parts += _wrapped(label, text)
        parts.append("")
    if data["stopped"]:
        parts.append(f"stopped early: {data['stopped']}")
    return "\n".join(parts).rstrip() + "\n"


def show(data: Mapping[str, Any]) -> None:
    """The same on a terminal. Needs rich."""
    from rich.console import Console
    from rich.table import Table as Rich
    from rich.text import Text

    console = Console(highlight=False)
    console.print(Text(headline(data), style="bold"))
    for table in tables(data):
        grid = Rich(title=table.title or None, title_justify="left", header_style="bold")
        for name in table.head:
            grid.add_column(name, overflow="fold")
        for row in table.rows:
            grid.add_row(*(Text(cell, style=_colour(cell)) for cell in row))
        console.print(grid)
    for lines in findings(data):
        for label, text in lines:
            first = label == "" and text[:1].isdigit()
            console.print(Text(text if first else f"   {label:<6}{text}", style="bold red" if first else ""))
        console.print()
    if data["stopped"]:
        console.print(Text(f"stopped early: {data['stopped']}", style="bold red"))


def seconds(value: float | None) -> str:
    """A time as people read it; a dash for none."""
    if value is None:
        return "-"
    return f"{value * 1000:.0f} ms" if value < 1 else f"{value:.2f} s"


def _colour(cell: str) -> str:
    return "bold red" if cell.startswith("WRONG") else _COLOURS.get(cell, "")


def _cell(cell: Mapping[str, int]) -> str:
    if not cell["requests"]:
        return "-"
    if cell["faulty"]:
        return f"WRONG {cell['faulty']} of {cell['requests']}"
    if cell["unjudged"] == cell["requests"]:
        return "not judged"
    return "ok" if not cell["unjudged"] else f"ok, {cell['unjudged']} of {cell['requests']} not judged"


def _latency(row: Mapping[str, Any]) -> list[str]:
    rate = row["tokens_per_second"]
    times = [row[key] for key in ("first_p50", "first_p95", "gap_p50", "gap_p99", "answer_p50")]
    return [str(row["at_once"]), str(row["requests"]), *map(seconds, times), "-" if rate is None else f"{rate:.0f}"]


def _plain_table(table: Table) -> list[str]:
    cells = [list(table.head), *map(list, table.rows)]
    widths = [max(len(row[n]) for row in cells) for n in range(len(table.head))]
    lines = ["  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)).rstrip() for row in cells]
    return [lines[0], "  ".join("-" * w for w in widths), *lines[1:]]


def _short(event: str) -> str:
    """The part of an event that tells something: from its choices on."""
    at = max(0, event.find('"choices":'))
    shown = ("..." if at else "") + event[at:]
    return shown if len(shown) <= 300 else shown[:297] + "..."


def _wrapped(label: str, text: str) -> list[str]:
    lead = f"   {label:<6}"
    if label in ("event", "", "text"):
        # Evidence stays as it came, on one line.
        return [lead + text]
    return textwrap.wrap(text, WIDTH, initial_indent=lead, subsequent_indent=" " * len(lead), break_on_hyphens=False)
