"""``engine-overlay list``: every known patch, with its area, the releases it was tested on, and its title."""

from __future__ import annotations

from collections import Counter
from typing import Annotated, Any

import typer

from engine_overlay import catalog
from engine_overlay.cli.main import fail
from engine_overlay.cli.options import AsJson, OnlyEngine
from engine_overlay.cli.tables import say, show, show_json
from engine_overlay.record import ENGINES
from engine_overlay.settings import suggest

EXAMPLES = ("engine-overlay list", "engine-overlay list --area parsing --engine vllm")
EXITS = {0: "the patches were listed", 1: "one of them cannot be loaded", 2: "the call was not understood"}


def command(
    area: Annotated[str, typer.Option(metavar="AREA", help="Only patches of this area.")] = "",
    engine: OnlyEngine = None,
    retired: Annotated[bool, typer.Option("--retired", help="Also patches no longer needed, and why.")] = False,
    json: AsJson = False,
) -> int:
    """List every known patch: the built-in ones, and those of other installed packages.

    Each row has the id that settings and other commands take, the area, whether it is on by default, and the
    releases it was tested on. No engine needs to be installed.

    JSON: an object with patches (id, area, title, default, origin, engines as first and last release, group),
    retired (id, reason, fixed_in) and problems (lines).
    """
    known = catalog.load()
    areas = sorted({entry.area for entry in known.entries.values()})
    if area and area not in areas:
        return fail("list", f"there is no area {area}{suggest(area, areas)}", f"use one of {', '.join(areas)}")
    data = [
        _row(entry)
        for entry in known.entries.values()
        if area in ("", entry.area) and (engine is None or engine.value in entry.patch.engines)
    ]
    stones = [{"id": s.id, "reason": s.reason, "fixed_in": dict(s.fixed_in)} for s in known.tombstones.values()]
    if json:
        show_json({"patches": data, "retired": stones, "problems": known.problems})
        return 1 if known.problems else 0
    rows = [[row["id"], row["area"], "on" if row["default"] else "off", *row["releases"], row["title"]] for row in data]
    show(rows, ["patch", "area", "default", *ENGINES, "what it does"], words=["default"])
    for stone in stones if retired else ():
        say(f"retired: {stone['id']}: {stone['reason']}")
    counts = Counter("on" if row["default"] else "off" for row in data)
    say(f"{len(data)} patches: {counts['on']} on by default, {counts['off']} off")
    for line in known.problems:
        say(f"problem: {line}", style="bold red")
    return 1 if known.problems else 0


def _row(entry: catalog.Entry) -> dict[str, Any]:
    patch = entry.patch
    ranges = {engine: [closed.first, closed.last] for engine, closed in patch.engines.items()}
    return {
        "id": patch.id,
        "area": entry.area,
        "title": entry.title,
        "default": patch.default,
        "origin": entry.origin,
        "engines": ranges,
        "releases": ["-".join(ranges[engine]) if engine in ranges else "" for engine in ENGINES],
        "group": patch.group,
    }
