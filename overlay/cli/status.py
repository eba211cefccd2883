"""``engine-overlay status``: the status files of the running processes, as a table or as JSON."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from engine_overlay import profile, settings, status
from engine_overlay.cli.main import table


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print the reports as a JSON list")
    parser.add_argument("--pid", type=int, help="only this process")
    parser.add_argument("--state-dir", type=Path, help="where the status files are (default: as the processes have it)")


def main(args: argparse.Namespace) -> int:
    """0: every patch that should be in is in; 1: one is refused or displaced, or no process has the overlay."""
    place = status.folder(args.state_dir or settings.read().state_dir)
    reports = [r for r in status.read_all(place) if args.pid in (None, r["pid"])]
    if args.json:
        print(json.dumps(reports, indent=1))
    elif not reports:
        print(f"engine-overlay: no running process has an engine with the overlay in it (looked in {place})")
    else:
        print("\n\n".join(_text(r) for r in reports))
    wrong = any(p["verdict"] in _REFUSED or p["state"] == "displaced" for r in reports for p in r["patches"])
    return 1 if wrong or not reports else 0


_REFUSED = ("untested", "drifted", "missing", "conflict", "failed")


def _text(report: dict) -> str:
    engine = report["engine"] or {"name": "no engine", "version": ""}
    command = " ".join(report["argv"])
    head = f"pid {report['pid']}: {engine['name']} {engine['version']}, way in: {report['way']}: {command[:100]}"
    rows = [[p["id"], p["state"] or p["verdict"], p["state_reason"] or p["reason"]] for p in report["patches"]]
    lines = [head, *_profile(report), table(rows, ["patch", "state", "why"])]
    return "\n".join(lines + [f"problem: {line}" for line in report["problems"]])


def _profile(report: dict) -> list[str]:
    """The effective values; only the process that made the engine's config knows them."""
    name, values = report.get("profile") or "off", report.get("values") or {}
    lines = [f"profile {name}, {engine}: {profile.spelled(found)}" for engine, found in values.items()]
    if not lines and name != "off":
        lines.append(f"profile {name}; its values are in the process that makes the engine's config")
    return lines
