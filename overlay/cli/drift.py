"""``engine-overlay drift``: what another engine changed of what the patches touch, and which are needless there."""

from __future__ import annotations

import difflib
import os
import subprocess
import sys
from json import dumps, loads
from pathlib import Path
from typing import Annotated, Any

import typer

from engine_overlay import catalog, engines, fingerprint, verdict
from engine_overlay.cli import words
from engine_overlay.cli.diff import source_of
from engine_overlay.cli.main import fail
from engine_overlay.cli.options import AsJson, Sources
from engine_overlay.cli.tables import say, show, show_diff, show_json
from engine_overlay.record import ABSENT, Patch, Target
from engine_overlay.verify import releases

EXAMPLES = ("engine-overlay drift", "engine-overlay drift --release vllm-0.34.0")
EXITS = {
    0: "nothing changed that a patch touches",
    1: "something did, or a patch is needless",
    2: "no such engine, or the call was not understood",
}

_MARK = "engine-overlay-drift:"


def command(
    sources: Sources = None,
    release: Annotated[
        str | None, typer.Option("--release", metavar="LABEL", help="A release to fetch with pip, like vllm-0.34.0.")
    ] = None,
    no_probes: Annotated[bool, typer.Option("--no-probes", help="Compare sources only, do not run it.")] = False,
    json: AsJson = False,
    probe: Annotated[str | None, typer.Option("--probe", hidden=True)] = None,
) -> int:
    """Show what another release of an engine changed of what the patches touch, and which patches it makes needless.

    Each function that a patch replaces or relies on is compared with the bodies that were tested, with the difference
    from the newest tested release whose sources are in the cache. Then the fault of each patch is looked for in that
    release, without the overlay: a patch whose fault is gone can be retired.

    JSON: a list of objects with engine, problem (a line, or empty) and patches (id, changed: target, kind, body, why,
    diff; probe: outcome and evidence, or null; retire).
    """
    if probe:
        print(_MARK + dumps(_probe_all(probe)))
        return 0
    folder, wrong = _folder(sources, release)
    if wrong:
        return fail("drift", *wrong)
    found = engines.installed([str(folder)] if folder else None)
    if not found:
        where = folder or "this environment"
        return fail("drift", f"{where} holds no engine", "give --sources or --release, or install an engine")
    known = catalog.load()
    reports = [look(known, engine, folder, probes=not no_probes) for engine in found]
    if json:
        show_json(reports)
    else:
        for i, report in enumerate(reports):
            if i:
                say()
            _text(report)
    return 1 if any(row["changed"] or row["retire"] for report in reports for row in report["patches"]) else 0


def _folder(sources: Path | None, release: str | None) -> tuple[Path | None, tuple[str, str] | None]:
    if sources and release:
        return None, ("--sources and --release are both given", "give one of them")
    if sources:
        return sources.resolve(), None
    if not release:
        return None, None
    distribution, _, version = release.replace("_", "-").rpartition("-")
    if distribution not in releases.PACKAGE:
        known = ", ".join(releases.PACKAGE)
        return None, (f"{release} is no release of {known}", "write it like vllm-0.34.0")
    try:
        return releases.fetch(releases.Release(distribution, version)), None
    except (OSError, subprocess.CalledProcessError) as error:
        return None, (
            f"{release} cannot be fetched ({words.why_not_fetched(error)})",
            "see that it exists and pip reaches an index",
        )


def look(known: catalog.Catalog, engine: engines.Engine, folder: Path | None, *, probes: bool) -> dict[str, Any]:
    """``{"engine", "patches": [{"id", "changed": [{"target", "kind", "body", "why", "diff"}], "probe", "retire"}]}``.

    ``probe`` is [outcome, evidence] of the stock engine, None when it was not asked.
    """
    seen, said = _probes(engine.name, folder) if probes else ({}, "")
    rows = []
    for i, entry in known.entries.items():
        patch = entry.patch
        if not _concerns(patch, engine):
            continue
        changed = [
            _change(patch, engine, target, kind)
            for kind, targets in (("replaced", patch.targets), ("read", patch.reads))
            for target in targets
        ]
        probe = seen.get(i)
        row = {"id": i, "changed": [c for c in changed if c is not None], "probe": probe}
        rows.append(row | {"retire": bool(probe) and probe[0] == "ABSENT"})
    return {"engine": engine.label, "patches": rows, "problem": said}


def _concerns(patch: Patch, engine: engines.Engine) -> bool:
    """Whether the patch is about this release: not about older ones only, and not about newer ones."""
    from packaging.version import Version

    if engine.name not in patch.engines:
        return False
    release, fixed = engine.release, patch.fixed_in[engine.name]
    if release is None:
        return fixed is None
    return Version(patch.introduced_in[engine.name]) <= release and (fixed is None or release < Version(fixed))


def _change(patch: Patch, engine: engines.Engine, target: Target, kind: str) -> dict[str, Any] | None:
    body, why = verdict.body_of(engine, target)
    if body in target.bodies:
        return None
    if body == ABSENT:
        why = f"{target.qualname} is gone"
    return {
        "target": target.path,
        "kind": kind,
        "body": body,
        "why": why or f"its body is {body}, which is unknown",
        "diff": _diff(patch, engine, target),
    }


def _diff(patch: Patch, engine: engines.Engine, target: Target) -> str:
    """From the newest release in the patch's range whose sources are in the cache; empty when there is none."""
    names = {package: distribution for distribution, package in releases.PACKAGE.items()}
    last = releases.Release(names[engine.name], patch.engines[engine.name].last)
    if not last.sources.is_dir():
        return ""
    (old,) = engines.installed([str(last.sources)])[:1] or (None,)
    texts = []
    for side in (old, engine):
        path = side.source(target.module) if side is not None else None
        node = fingerprint.find(fingerprint.tree(path), target.qualname) if path else None
        texts.append(source_of(path, node).splitlines(True) if node is not None else [])
    return "".join(difflib.unified_diff(*texts, f"{target.path} ({last.label})", f"{target.path} ({engine.label})"))


def _text(report: dict[str, Any]) -> None:
    """A table, then each difference."""
    rows = []
    for row in report["patches"]:
        changed = ", ".join(c["target"].rpartition(".")[2] for c in row["changed"]) or "nothing"
        outcome, evidence = row["probe"] or ("not asked", "")
        advice = "retire it: the fault is gone" if row["retire"] else "look at the difference" if row["changed"] else ""
        rows.append([row["id"], changed, outcome, advice or evidence])
    head = ["patch", "changed", "fault without it", "what to do"]
    show(rows, head, words=["fault without it", "what to do"], title=report["engine"])
    if report["problem"]:
        say(f"problem: {report['problem']}", style="bold red")
    changed = sum(bool(row["changed"]) for row in report["patches"])
    retire = sum(row["retire"] for row in report["patches"])
    say(f"{len(report['patches'])} patches concern this release: {changed} meet changes, {retire} to retire")
    for row in report["patches"]:
        for change in row["changed"]:
            say()
            say(f"{row['id']}: {change['target']} ({change['kind']}): {change['why']}", style="bold")
            show_diff(change["diff"].rstrip("\n") or "(no older release in the cache to compare with)")


def _probe_all(engine_name: str) -> dict[str, list[str]]:
    from engine_overlay.cli.doctor import probe

    engine = engines.locate(engine_name)
    known = catalog.load()
    return {i: probe(entry, engine) for i, entry in known.entries.items() if engine_name in entry.patch.engines}


def _probes(engine_name: str, folder: Path | None) -> tuple[dict[str, list[str]], str]:
    """What every probe says of the stock engine, asked in a process of its own; and what went wrong."""
    env = os.environ | {"ENGINE_OVERLAY": "off"}
    if folder is not None:
        env["PYTHONPATH"] = os.pathsep.join([str(folder), *filter(None, [os.environ.get("PYTHONPATH")])])
    command = [sys.executable, "-m", "engine_overlay.cli", "drift", "--probe", engine_name]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    for line in done.stdout.splitlines():
        if line.startswith(_MARK):
            return loads(line[len(_MARK) :]), ""
    last = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
    return {}, f"the probes could not be run ({last}); only the sources were compared"
