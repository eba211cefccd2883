"""The summary as tables and sentences, for the command line and the report."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Table:
    """``words``: the columns whose cells begin with a word that deserves a colour."""

    title: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    words: Sequence[str] = ()


def tables(data: Mapping[str, Any]) -> Iterator[Table]:
    """The tables of a summary, in the order in which they are shown."""
    rows = []
    for row in data["checks"]:
        notes = [f"{times}x {kind}" for kind, times in row["kinds"].items()]
        notes += [f"{times}x {reason}" for reason, times in row["reasons"].items()]
        counts = [row["requests"], row["faulty"], row["unjudged"]]
        rows.append([row["check"], row["title"], *map(str, counts), row["result"], "; ".join(notes)])
    yield Table("", ("check", "what was asked", "asked", "faulty", "not judged", "result", "what"), rows, ("result",))
    if data["types"]:
        cells = [[row["type"], _cell(row["streaming"]), _cell(row["full"])] for row in data["types"]]
        yield Table("types of arguments", ("type", "streaming", "full"), cells, ("streaming", "full"))
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


def findings(data: Mapping[str, Any]) -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """Each finding: its title, and lines of (label, text)."""
    for number, row in enumerate(data["findings"], 1):
        lines = [("seen", row["said"])]
        if row["piece"]:
            lines.append(("text", repr(row["piece"])))
        lines += [("event" if n == 0 else "", _short(line)) for n, line in enumerate(row["events"].splitlines()[:3])]
        lines += [("why", row["why"]), ("next", row["step"])]
        yield f"{number}. {row['title']} ({where(row)})", lines


def where(row: Mapping[str, Any]) -> str:
    """In which checks a finding was made, and in how many of their answers."""
    counts = [f"{check} {count['times']} of {count['of']}" for check, count in row["checks"].items()]
    return f"{'streaming' if row['streamed'] else 'full'}: {', '.join(counts)}"


def seconds(value: float | None) -> str:
    """A time as people read it; a dash for none."""
    if value is None:
        return "-"
    return f"{value * 1000:.0f} ms" if value < 1 else f"{value:.2f} s"


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


def _short(event: str) -> str:
    """The part of an event that tells something: from its delta or its message on."""
    at = max(0, event.find('"delta":'), event.find('"message":'))
    shown = ("..." if at else "") + event[at:]
    return shown if len(shown) <= 200 else shown[:197] + "..."
