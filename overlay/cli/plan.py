"""``engine-overlay plan``: the gate's verdicts for the engines that are installed, without importing them."""

from __future__ import annotations

import argparse
import json

from engine_overlay import catalog, engines, settings, verdict
from engine_overlay.cli.main import fail, table


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print the verdicts as JSON")
    parser.add_argument("--sources", help="a folder that holds an engine's package, instead of the installed one")


def main(args: argparse.Namespace) -> int:
    """0: nothing is refused; 1: something is; 2: no engine is installed."""
    found = engines.installed([args.sources] if args.sources else None)
    if not found:
        return fail("plan", "no engine is installed here", "install vllm or aphrodite-engine, or give --sources")
    wanted = settings.read()
    known = catalog.load()
    data, text, refused = [], [], False
    for engine in found:
        verdicts = verdict.decide(known, engine, wanted)
        refused |= any(v.refused for v in verdicts.values())
        rows = [[i, v.code, v.reason] for i, v in verdicts.items()]
        text.append(f"{engine.label} in {engine.root}\n" + table(rows, ["patch", "verdict", "reason"]))
        data.append(
            {
                "engine": engine.name,
                "version": engine.version,
                "distribution": engine.distribution,
                "patches": {
                    i: {"verdict": v.code, "reason": v.reason, "detail": v.detail} for i, v in verdicts.items()
                },
            }
        )
    problems = [*wanted.problems, *known.problems, *verdict.unknown_ids(known, wanted)]
    if wanted.mode == "off":
        problems.insert(0, "ENGINE_OVERLAY=off: none of this is applied")
    if args.json:
        print(json.dumps({"engines": data, "problems": problems}, indent=1))
    else:
        print("\n\n".join(text + [f"problem: {line}" for line in problems]))
    return 1 if refused else 0
