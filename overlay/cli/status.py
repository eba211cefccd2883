"""``engine-overlay status``: the status files of the running processes, as a table or as JSON."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from engine_overlay import profile, reach, reading, settings, verdict
from engine_overlay.cli import words
from engine_overlay.cli.options import AsJson
from engine_overlay.cli.tables import clean, legend, say, show, show_json

EXAMPLES = ("engine-overlay status", "engine-overlay status --pid 4711 --json")
EXITS = {
    0: "every patch that should be in is in",
    1: "one is refused, displaced or bypassed by requests, or no process has the overlay",
    2: "the call was not understood",
}

_CALLED = "no API server runs here, so only what the program itself calls meets them"


def command(
    pid: Annotated[int | None, typer.Option("--pid", help="Only this process.")] = None,
    state_dir: Annotated[
        Path | None,
        typer.Option("--state-dir", metavar="FOLDER", help="Where the status files are; default: as the processes."),
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="A row for every patch, also those not needed or off.")] = False,
    json: AsJson = False,
) -> int:
    """Show what is active in each running process that has an engine with the overlay in it.

    Each process is asked itself, and answers from the functions as they are at that moment. One that does not answer
    is shown by what it wrote last. Processes and patches that are not well come first, with the next step; those that
    are not needed or switched off are only counted.

    JSON: a list of reports, one a process, with pid, role, argv, engine, way, mode, profile, values, problems, live,
    user, word, elsewhere, and all patches (id, engine, title, origin, verdict, reason, state, state_reason, loaded,
    path, scope, targets). A state of "out of path" says that requests do not meet the patch there; loaded is the state
    of the functions alone. The user is whose word the report is: with word "kernel" a process of that user answered,
    with "file" it is the owner of its file. A process that runs in another container is elsewhere.
    """
    found = reading.gather(state_dir or settings.read().state_dir, pid)
    reports = found.reports
    for line in found.lines:
        print(clean(f"engine-overlay: status: {line}"), file=sys.stderr)
    reports.sort(key=lambda report: not any(map(_wrong, report["patches"])))
    if json:
        show_json(reports)
    elif not reports:
        looked = ", ".join(str(place) for place in found.looked)
        which = "no running process" if pid is None else f"no running process {pid}"
        say(f"engine-overlay: {which} has an engine with the overlay in it (looked in {looked})")
    else:
        for i, report in enumerate(reports):
            if i:
                say()
            _text(report, every)
        used = dict.fromkeys(
            _word(p) for r in reports for p in r["patches"] if every or _folded(p) in ("", "applied")
        )
        legend({word: said for word in used if (said := (words.STATES | words.VERDICTS).get(word))})
    return 1 if not reports or any(_wrong(p) for report in reports for p in report["patches"]) else 0


def _word(patch: dict[str, Any]) -> str:
    return str(patch["state"] or patch["verdict"])


def _wrong(patch: dict[str, Any]) -> bool:
    return patch["verdict"] in verdict.REFUSALS or patch["state"] == "displaced" or patch.get("path") == reach.BYPASSED


def _text(report: dict[str, Any], every: bool) -> None:
    engine = report["engine"] or {}
    label = f"{engine.get('name', 'no engine')} {engine.get('version', '')}"
    command = " ".join(" ".join(map(str, report["argv"])).split())
    role = f", {report['role']}" if report["role"] else ""
    say(f"pid {report['pid']}{role}: {label}, way in: {report['way']}: {command}", style="bold")
    if whose := _whose(report):
        say(whose, style="yellow")
    if not report["live"]:
        say(f"it does not answer; this is what it wrote at {_clock(report.get('time', 0))}", style="yellow")
    for line in _profile(report):
        say(line)
    patches = sorted(report["patches"], key=lambda p: words.ordered(_word(p)))
    rows = patches if every else [p for p in patches if not _folded(p)]
    if rows:
        show([[p["id"], _word(p), _why(p)] for p in rows], ["patch", "state", "why"], words=["state"])
    if not every:
        for line in _counted([p for p in patches if _folded(p)]):
            say(line)
    for patch in patches:
        if _wrong(patch) and (step := words.next_step(_word(patch), str(patch["id"]))):
            say(f"next, for {patch['id']}: {step}")
    for line in report["problems"]:
        say(f"problem: {line}", style="bold red")


def _whose(report: dict[str, Any]) -> str:
    """Whose word the report is, where it is not this user's own."""
    said = []
    if report["user"] != os.geteuid():
        known = "whose process answers" if report["word"] == "kernel" else "whose file it is"
        said.append(f"this is the word of user {report['user']}, {known}")
    if report["elsewhere"]:
        said.append("it is a process of another container, with a process id of its own there")
    return "; ".join(said)


def _why(patch: dict[str, Any]) -> str:
    return str(patch["state_reason"] or patch["reason"])


def _folded(patch: dict[str, Any]) -> str:
    """The list in which a patch is only named or counted; empty for one that needs a row of its own."""
    if patch.get("path") == reach.ELSEWHERE:
        return "elsewhere"
    word = _word(patch)
    if word == reach.OUT_OF_PATH:
        return f"{word}: {patch['state_reason']}"
    if word == "applied" and patch.get("path") == reach.CALLED:
        return "called"
    return word if word in ("applied", "native", "disabled") else ""


def _counted(patches: list[dict[str, Any]]) -> Iterator[str]:
    lists: dict[str, list[dict[str, Any]]] = {}
    for patch in patches:
        lists.setdefault(_folded(patch), []).append(patch)
    for key, found in lists.items():
        if key.startswith(reach.OUT_OF_PATH):
            yield f"{reach.OUT_OF_PATH} ({len(found)}): {_ids(found)}: {found[0]['state_reason']}"
    if found := lists.get("applied"):
        yield f"applied ({len(found)}): {_ids(found)}"
    if found := lists.get("called"):
        yield f"applied, but {_CALLED} ({len(found)}): {_ids(found)}"
    asked = [p for p in lists.get("disabled", ()) if str(p["reason"]).startswith("named in")]
    if asked:
        yield f"switched off ({len(asked)}): {_ids(asked)}"
    counts = {
        "of other processes": len(lists.get("elsewhere", ())),
        "not in this release": len(lists.get("native", ())),
        "off by default or not asked for": len(lists.get("disabled", ())) - len(asked),
    }
    said = ", ".join(f"{count} {what}" for what, count in counts.items() if count)
    if said:
        yield f"not needed here: {said}; --all lists them"


def _ids(patches: list[dict[str, Any]]) -> str:
    return ", ".join(str(patch["id"]) for patch in patches)


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
