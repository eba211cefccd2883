"""``engine-overlay fingerprint TARGET``: the body hash to write into a patch record."""

from __future__ import annotations

import argparse

from engine_overlay import engines, verdict
from engine_overlay.cli.main import fail
from engine_overlay.record import ABSENT, RecordError, Target


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("target", nargs="+", help="module:qualified.name, the module relative to the engine's package")
    parser.add_argument(
        "--sources", nargs="*", help="folders that hold an engine's package, instead of the installed one"
    )


def main(args: argparse.Namespace) -> int:
    """0: every target has a body; 1: one has none; 2: the call was not understood."""
    paths = [[folder] for folder in args.sources] if args.sources else [None]
    found = [engine for path in paths for engine in engines.installed(path)]
    if not found:
        return fail("fingerprint", "no engine was found", "install one, or give --sources")
    missing = False
    for path in args.target:
        try:
            target = Target(path=path, bodies=(ABSENT,))
        except RecordError as error:
            return fail("fingerprint", str(error), "write it like parser.qwen3:Qwen3Parser.extract_reasoning")
        for engine in found:
            body, why = verdict.body_of(engine, target)
            missing |= body is None
            print(f"{engine.label:28} {path} {body or why}")
    return 1 if missing else 0
