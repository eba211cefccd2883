"""``engine-overlay list``: every known patch, with its area, the releases it was tested on, and its title."""

from __future__ import annotations

import argparse
import json

from engine_overlay import catalog
from engine_overlay.cli.main import table


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print the records as JSON")
    parser.add_argument("--retired", action="store_true", help="also patches that are no longer needed, and why")


def main(args: argparse.Namespace) -> int:
    """0: the patches were listed; 1: one of them cannot be loaded."""
    known = catalog.load()
    data = [_row(entry) for entry in known.entries.values()]
    retired = [{"id": s.id, "reason": s.reason, "fixed_in": dict(s.fixed_in)} for s in known.tombstones.values()]
    if args.json:
        print(json.dumps({"patches": data, "retired": retired, "problems": known.problems}, indent=1))
        return 1 if known.problems else 0
    rows = [
        [row["id"], row["area"], "on" if row["default"] else "off", *row["releases"], row["title"]] for row in data
    ]
    print(table(rows, ["patch", "area", "default", "vllm", "aphrodite", "what it does"]))
    for stone in retired if args.retired else ():
        print(f"retired: {stone['id']}: {stone['reason']}")
    for line in known.problems:
        print(f"problem: {line}")
    return 1 if known.problems else 0


def _row(entry: catalog.Entry) -> dict[str, object]:
    patch = entry.patch
    ranges = {engine: [closed.first, closed.last] for engine, closed in patch.engines.items()}
    shown = ["-".join(ranges[engine]) if engine in ranges else "" for engine in ("vllm", "aphrodite")]
    return {
        "id": patch.id,
        "area": entry.area,
        "title": entry.title,
        "default": patch.default,
        "origin": entry.origin,
        "engines": ranges,
        "releases": shown,
        "group": patch.group,
    }
