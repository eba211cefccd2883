"""``engine-overlay verify``: recorded answers of models through the engine's own serving code, without and with it."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections import Counter
from json import dumps, loads
from pathlib import Path
from typing import Annotated, Any

import typer

from engine_overlay import engines
from engine_overlay.cli import words
from engine_overlay.cli.main import fail
from engine_overlay.cli.options import AsJson
from engine_overlay.cli.tables import say, show, show_json
from engine_overlay.verify import cases as public
from engine_overlay.verify import releases

EXAMPLES = ("engine-overlay verify", "engine-overlay verify --quick --case 003 --json")
EXITS = {
    0: "with the overlay every case is right",
    1: "one is wrong",
    2: "no engine, no case, or the call was not understood",
}
MANY = ("--sources",)

_NOT_OFFERED = "not been registered"
"""What engines say of a parser that they do not have."""


def command(
    case: Annotated[
        list[str] | None, typer.Option("--case", metavar="ID", help="Only cases that start with this; may be repeated.")
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Not every cut of an answer into two deltas.")] = False,
    sources: Annotated[
        list[Path] | None,
        typer.Option("--sources", metavar="FOLDER...", help="Folders that hold an engine's package; default: here."),
    ] = None,
    matrix: Annotated[bool, typer.Option("--matrix", help="Every release in range, fetched into the cache.")] = False,
    only: Annotated[
        str | None,
        typer.Option("--only", metavar="LABELS", help="With --matrix: these, like vllm-0.33.0,vllm-0.23.0."),
    ] = None,
    json: AsJson = False,
) -> int:
    """Send recorded answers of models through the engine's own serving code, without the overlay and with it.

    Each answer is cut into deltas in many ways, streamed and whole, and what comes out is compared with what the model
    meant. The table counts the cases that are right; those that are wrong with the overlay are printed below it.

    JSON: a list of objects with engine, rows (by pair of parsers: cases, "off stream", "on stream", "off full", "on
    full"), wrong (by case, then by way) and worse (what is right without the overlay only).
    """
    wanted = case or []
    cases = public.load(only=tuple(wanted))
    if not cases:
        return fail("verify", f"no case begins with {', '.join(wanted)}", 'run it without "--case" to see them all')
    places, wrong = _places(sources, matrix, only)
    if wrong:
        return fail("verify", *wrong)
    reports = []
    for label, folder in places:
        try:
            report = verify(label, folder, cases, wanted, quick=quick)
        except RuntimeError as error:
            return fail("verify", str(error), 'run "engine-overlay doctor", or the same with ENGINE_OVERLAY=off')
        reports.append(report)
        if not json:
            _text(report)
    if json:
        show_json(reports)
    return 1 if any(report["wrong"] for report in reports) else 0


def _places(
    sources: list[Path] | None, matrix: bool, only: str | None
) -> tuple[list[tuple[str, Path | None]], tuple[str, str] | None]:
    """(label, folder to put in front of the path) of each engine; and what is wrong with the call, if anything."""
    if only and not matrix:
        return [], ("--only is for --matrix", "add --matrix, or leave it out")
    if sources and matrix:
        return [], ("--sources and --matrix are both given", "give one of them")
    if matrix:
        try:
            chosen = releases.selected(only)
        except LookupError as error:
            return [], (str(error), 'write it like "vllm-0.33.0"')
        try:
            releases.fetch_all([release for release in chosen if not release.sources.is_dir()])
        except (OSError, subprocess.CalledProcessError) as error:
            return [], (
                f"a release cannot be fetched ({words.why_not_fetched(error)})",
                "see that pip can reach a package index",
            )
        return [(release.label, release.sources) for release in chosen], None
    folders = [folder.resolve() for folder in sources] if sources else [None]
    found = []
    for folder in folders:
        here = engines.installed([str(folder)] if folder else None)
        if not here and folder:
            return [], (f"{folder} holds no engine", "give the folder in which the package vllm or aphrodite lies")
        found += [(engine.label, folder) for engine in here[:1]]
    if not found:
        return [], ("no engine is installed here", "install vllm or aphrodite-engine, or give --sources or --matrix")
    return found, None


def verify(
    label: str, folder: Path | None, cases: list[public.Case], only: list[str], *, quick: bool
) -> dict[str, Any]:
    """One engine: ``{"engine", "rows", "wrong", "worse"}``. Raises RuntimeError when it cannot be run."""
    answers = {side: _replay(folder, side, only, quick=quick) for side in ("off", "on")}
    rows: dict[str, Counter[str]] = {}
    wrong, worse = {}, []
    for case in cases:
        off, on = (answers[side][case["id"]] for side in ("off", "on"))
        pair = "+".join(case[key] or "-" for key in ("reasoning_parser", "tool_parser"))
        row = rows.setdefault(pair, Counter())
        if _is_missing(off) and _is_missing(on):
            row["not offered"] += 1
            continue
        row["cases"] += 1
        for side, answer in (("off", off), ("on", on)):
            for mode in ("stream", "full"):
                row[f"{side} {mode}"] += answer[mode]
        if on["wrong"]:
            wrong[case["id"]] = on["wrong"]
        worse += [f"{case['id']} {way}" for way in on["wrong"] if way not in off["wrong"]]
    return {"engine": label, "rows": {pair: dict(row) for pair, row in rows.items()}, "wrong": wrong, "worse": worse}


def _is_missing(answer: dict[str, Any]) -> bool:
    seen = answer["wrong"].values()
    return bool(seen) and all(_NOT_OFFERED in difference.get("raised", "") for difference in seen)


def _text(report: dict[str, Any]) -> None:
    """A table of the pairs of parsers, then each case that is wrong with the overlay."""
    head = ["parsers", "cases", "streaming off", "on", "full off", "on", "note"]
    rows = []
    for pair, row in report["rows"].items():
        if not row.get("cases"):
            rows.append([pair, "-", "", "", "", "", "not in this release"])
            continue
        numbers = [str(row.get(f"{side} {mode}", 0)) for mode in ("stream", "full") for side in ("off", "on")]
        rows.append([pair, str(row["cases"]), *numbers, ""])
    asked = sum(row.get("cases", 0) for row in report["rows"].values())
    right = asked - len(report["wrong"])
    show(rows, head, title=f"{report['engine']}: {right} of {asked} cases right with the overlay")
    for case_id, ways in report["wrong"].items():
        way, difference = next(iter(ways.items()))
        seen = dumps(difference, ensure_ascii=False)
        seen = seen if len(seen) < 300 else f"{seen[:300]} ..."
        say(f"wrong: {case_id}, {len(ways)} ways, such as {way}: {seen}", style="bold red")
    for line in report["worse"]:
        say(f"worse than without the overlay: {line}", style="bold red")
    say()


def _replay(folder: Path | None, side: str, only: list[str], *, quick: bool) -> dict[str, Any]:
    env = {name: value for name, value in os.environ.items() if not name.startswith("ENGINE_OVERLAY")}
    env |= {"ENGINE_OVERLAY": side} | _settings()
    if folder is not None:
        paths = [str(folder), *filter(None, [os.environ.get("PYTHONPATH")])]
        env["PYTHONPATH"] = os.pathsep.join(paths)
    with tempfile.TemporaryDirectory() as scratch:
        out = Path(scratch) / "answers.json"
        command = [sys.executable, "-m", "engine_overlay.verify.replay", "--out", str(out)]
        command += [] if quick else ["--every-cut"]
        command += ["--overlay"] if side == "on" else []
        for case in only:
            command += ["--case", case]
        done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
        if not out.is_file():
            last = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
            raise RuntimeError(f"the engine cannot be run here: {last}")
        return loads(out.read_text(encoding="utf-8"))


def _settings() -> dict[str, str]:
    """What the user chose, such as patches switched off; but not the switch itself, which is what is compared."""
    kept = {name: value for name, value in os.environ.items() if name.startswith("ENGINE_OVERLAY_")}
    return kept | {"ENGINE_OVERLAY_LOG": "quiet"}
