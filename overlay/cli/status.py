"""``engine-overlay status``: the status files of the running processes, as a table or as JSON."""

from __future__ import annotations

import sys
import time
from collections import Counter
from pathlib import Path
from typing import Annotated, Any

import typer

from engine_overlay import profile, settings, status, verdict
from engine_overlay.cli import words
from engine_overlay.cli.options import AsJson
from engine_overlay.cli.tables import clean, legend, say, show, show_json

EXAMPLES = ("engine-overlay status", "engine-overlay status --pid 4711 --json")
EXITS = {
    0: "every patch that should be in is in",
    1: "one is refused or displaced, or no process has the overlay",
    2: "the call was not understood",
}

_IN_OTHER_CASES = {"engine": None, "way": None, "profile": None, "role": None, "argv": [], "values": {}, "problems": []}
"""What a report of an earlier version may not have."""


def command(
    pid: Annotated[int | None, typer.Option("--pid", help="Only this process.")] = None,
    state_dir: Annotated[
        Path | None,
        typer.Option("--state-dir", metavar="FOLDER", help="Where the status files are; default: as the processes."),
    ] = None,
    json: AsJson = False,
) -> int:
    """Show what is active in each running process that has an engine with the overlay in it.

    Each process is asked itself, and answers from the functions as they are at that moment. One that does not answer
    is shown by what it wrote last. Processes and patches that are not well come first, with the next step.

    JSON: a list of reports, one a process, with pid, role, argv, engine, way, mode, profile, values, live, problems,
    and patches (id, engine, title, origin, verdict, reason, state, state_reason, targets).
    """
    wanted = state_dir or settings.read().state_dir
    places, closed = ([wanted], []) if wanted else status.places()
    reports = []
    for report in (r for place in places for r in status.read_all(place) if pid in (None, r["pid"])):
        if _sound(report):
            reports.append(_IN_OTHER_CASES | {key: value for key, value in report.items() if value is not None})
        else:
            _say_error(f"the report of process {report['pid']} cannot be read; it is of another version, or made up")
    for place in closed:
        _say_error(f"{place} belongs to another user and cannot be read; run it as that user, or root")
    reports.sort(key=lambda report: not any(map(_wrong, report["patches"])))
    if json:
        show_json(reports)
    elif not reports:
        looked = ", ".join(str(place) for place in places)
        which = "no running process" if pid is None else f"no running process {pid}"
        say(f"engine-overlay: {which} has an engine with the overlay in it (looked in {looked})")
    else:
        for i, report in enumerate(reports):
            if i:
                say()
            _text(report)
        used = dict.fromkeys(word for report in reports for p in report["patches"] if (word := _word(p)))
        legend({word: said for word in used if (said := (words.STATES | words.VERDICTS).get(word))})
    return 1 if not reports or any(_wrong(p) for report in reports for p in report["patches"]) else 0


def _say_error(line: str) -> None:
    print(clean(f"engine-overlay: status: {line}"), file=sys.stderr)


def _sound(report: dict[str, Any]) -> bool:
    """Whether a file that another user may have written has the shape of a report."""
    kinds = {"argv": list, "values": dict, "problems": list, "time": (int, float)}
    engine = report.get("engine")
    patches = report.get("patches")
    return (
        all(isinstance(report[key], kind) for key, kind in kinds.items() if report.get(key) is not None)
        and (engine is None or isinstance(engine, dict))
        and all(isinstance(values, dict) for values in (report.get("values") or {}).values())
        and isinstance(patches, list)
        and all(isinstance(p, dict) and {"id", "verdict", "reason", "state", "state_reason"} <= set(p) for p in patches)
    )


def _word(patch: dict[str, Any]) -> str:
    return str(patch["state"] or patch["verdict"])


def _wrong(patch: dict[str, Any]) -> bool:
    return patch["verdict"] in verdict.REFUSALS or patch["state"] == "displaced"


def _text(report: dict[str, Any]) -> None:
    engine = report["engine"] or {}
    label = f"{engine.get('name', 'no engine')} {engine.get('version', '')}"
    command = " ".join(" ".join(map(str, report["argv"])).split())
    role = f", {report['role']}" if report["role"] else ""
    say(f"pid {report['pid']}{role}: {label}, way in: {report['way']}: {command}", style="bold")
    if not report.get("live", True):
        say(f"it does not answer; this is what it wrote at {_clock(report.get('time', 0))}", style="yellow")
    for line in _profile(report):
        say(line)
    patches = sorted(report["patches"], key=lambda p: words.ordered(_word(p)))
    show(
        [[p["id"], _word(p), p["state_reason"] or p["reason"]] for p in patches],
        ["patch", "state", "why"],
        words=["state"],
    )
    counts = Counter(map(_word, patches))
    say(", ".join(f"{count} {word}" for word, count in counts.items()) or "no patches")
    for patch in patches:
        if _wrong(patch) and (step := words.next_step(_word(patch), str(patch["id"]))):
            say(f"next, for {patch['id']}: {step}")
    for line in report["problems"]:
        say(f"problem: {line}", style="bold red")


def _clock(seconds: float) -> str:
    try:
        return time.strftime("%H:%M:%S", time.localtime(seconds))
    except (OverflowError, ValueError, OSError):
        return "an unknown time"


def _profile(report: dict[str, Any]) -> list[str]:
    """The effective values; only the process that made the engine's config knows them."""
    name, values = report.get("profile") or "off", report.get("values") or {}
    lines = [f"profile {name}, {engine}: {profile.spelled(found)}" for engine, found in values.items()]
    if not lines and name != "off":
        lines.append(f"profile {name}; its values are in the process that makes the engine's config")
    return lines
