"""``engine-overlay drift``: what another engine changed of what the patches touch, and which are needless there."""

from __future__ import annotations

import argparse
import difflib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from engine_overlay import catalog, engines, fingerprint, verdict
from engine_overlay.cli.diff import source_of
from engine_overlay.cli.main import fail, table
from engine_overlay.record import ABSENT, Patch, Target
from engine_overlay.verify import releases

_MARK = "engine-overlay-drift:"


def add(parser: argparse.ArgumentParser) -> None:
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--sources", metavar="FOLDER", help="a folder that holds an engine's package")
    where.add_argument("--release", metavar="LABEL", help="a release to fetch from the package index: vllm-0.34.0")
    parser.add_argument("--json", action="store_true", help="print a report as JSON")
    parser.add_argument("--no-probes", action="store_true", help="do not run the engine: compare sources only")
    parser.add_argument("--probe", help=argparse.SUPPRESS)


def main(args: argparse.Namespace) -> int:
    """0: nothing changed that a patch touches; 1: something did, or a patch is needless; 2: no such engine."""
    if args.probe:
        print(_MARK + json.dumps(_probe_all(args.probe)))
        return 0
    folder, wrong = _folder(args)
    if wrong:
        return fail("drift", *wrong)
    found = engines.installed([str(folder)] if folder else None)
    if not found:
        where = folder or "this environment"
        return fail("drift", f"{where} holds no engine", "give --sources or --release, or install an engine")
    known = catalog.load()
    reports = [look(known, engine, folder, probes=not args.no_probes) for engine in found]
    if args.json:
        print(json.dumps(reports, indent=1))
    else:
        print("\n\n".join(show(report) for report in reports))
    return 1 if any(row["changed"] or row["retire"] for report in reports for row in report["patches"]) else 0


def _folder(args: argparse.Namespace) -> tuple[Path | None, tuple[str, str] | None]:
    if args.sources:
        return Path(args.sources).resolve(), None
    if not args.release:
        return None, None
    distribution, _, version = args.release.replace("_", "-").rpartition("-")
    if distribution not in releases.PACKAGE:
        known = ", ".join(releases.PACKAGE)
        return None, (f"{args.release} is no release of {known}", "write it like vllm-0.34.0")
    try:
        return releases.fetch(releases.Release(distribution, version)), None
    except (OSError, subprocess.CalledProcessError) as error:
        return None, (f"{args.release} cannot be fetched ({error})", "see that it exists and pip reaches an index")


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


def show(report: dict[str, Any]) -> str:
    """The report as text: a table, then each difference."""
    rows = []
    for row in report["patches"]:
        changed = ", ".join(c["target"].rpartition(".")[2] for c in row["changed"]) or "nothing"
        outcome, evidence = row["probe"] or ("not asked", "")
        advice = "retire it: the fault is gone" if row["retire"] else "look at the difference" if row["changed"] else ""
        rows.append([row["id"], changed, outcome, advice or evidence[:60]])
    lines = [report["engine"], table(rows, ["patch", "changed", "fault without it", "what to do"])]
    if report["problem"]:
        lines.append(f"problem: {report['problem']}")
    for row in report["patches"]:
        for change in row["changed"]:
            lines.append(f"\n{row['id']}: {change['target']} ({change['kind']}): {change['why']}")
            lines.append(change["diff"].rstrip("\n") or "(no older release in the cache to compare with)")
    return "\n".join(lines)


def _probe_all(engine_name: str) -> dict[str, list[str]]:
    from engine_overlay.doctor.probes import probe

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
            return json.loads(line[len(_MARK) :]), ""
    last = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
    return {}, f"the probes could not be run ({last}); only the sources were compared"
