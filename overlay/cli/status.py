"""``engine-overlay status``: the status files of the running processes, as a table or as JSON."""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

from engine_overlay import profile, settings, status
from engine_overlay.cli.main import table


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print the reports as a JSON list")
    parser.add_argument("--pid", type=int, help="only this process")
    parser.add_argument("--state-dir", type=Path, help="where the status files are (default: as the processes have it)")


def main(args: argparse.Namespace) -> int:
    """0: every patch that should be in is in; 1: one is refused or displaced, or no process has the overlay."""
    wanted = args.state_dir or settings.read().state_dir
    places, closed = ([wanted], []) if wanted else status.places()
    reports = [r for place in places for r in status.read_all(place) if args.pid in (None, r["pid"])]
    for place in closed:
        print(
            f"engine-overlay: status: {place} belongs to another user and cannot be read; run it as that user, or root",
            file=sys.stderr,
        )
    if args.json:
        print(json.dumps(reports, indent=1))
    elif not reports:
        looked = ", ".join(str(place) for place in places)
        print(f"engine-overlay: no running process has an engine with the overlay in it (looked in {looked})")
    else:
        # Another user wrote some of it: nothing of that may steer this terminal.
        text = "\n\n".join(_text(r) for r in reports)
        print("".join(char for char in text if char.isprintable() or char == "\n"))
    wrong = any(p["verdict"] in _REFUSED or p["state"] == "displaced" for r in reports for p in r["patches"])
    return 1 if wrong or not reports else 0


_REFUSED = ("untested", "drifted", "missing", "conflict", "failed")


def _text(report: dict) -> str:
    engine = report["engine"] or {"name": "no engine", "version": ""}
    command = " ".join(" ".join(report["argv"]).split())
    role = f", {report['role']}" if report.get("role") else ""
    head = f"pid {report['pid']}{role}: {engine['name']} {engine['version']}, way in: {report['way']}: {command[:100]}"
    rows = [[p["id"], p["state"] or p["verdict"], p["state_reason"] or p["reason"]] for p in report["patches"]]
    lines = [head, *_profile(report), table(rows, ["patch", "state", "why"])]
    if not report.get("live", True):
        written = time.strftime("%H:%M:%S", time.localtime(report["time"]))
        lines.insert(1, f"it does not answer; this is what it wrote at {written}")
    return "\n".join(lines + [f"problem: {line}" for line in report["problems"]])


def _profile(report: dict) -> list[str]:
    """The effective values; only the process that made the engine's config knows them."""
    name, values = report.get("profile") or "off", report.get("values") or {}
    lines = [f"profile {name}, {engine}: {profile.spelled(found)}" for engine, found in values.items()]
    if not lines and name != "off":
        lines.append(f"profile {name}; its values are in the process that makes the engine's config")
    return lines
