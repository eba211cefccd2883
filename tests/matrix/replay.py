"""Replay the public cases through the chat serving code and parsers of one engine release.

    python -m tests.matrix.replay --release vllm-0.33.0 [--off] [--case 001 --case 076] [--out FILE]
    python -m tests.matrix.replay --sources FOLDER       (any folder that holds the package vllm or aphrodite)

The release runs in the engine environment (:mod:`tests.matrix.environment`), with the overlay active there
through its start-up file, or switched off by ``--off``. Per case and way to cut it, the answer is right or
the wrong fields are shown. Exit status 0 also when cases are wrong: stock releases have faults.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from engine_overlay.verify import releases
from tests.matrix import environment


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.matrix.replay", description=__doc__.partition("\n")[0]
    )
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--release", help="a pinned release, like vllm-0.33.0")
    where.add_argument("--sources", type=Path, help="folder that holds the engine's package")
    parser.add_argument("--off", action="store_true", help="run with ENGINE_OVERLAY=off")
    parser.add_argument("--case", action="append", default=[], help="only cases whose id starts with this")
    parser.add_argument("--out", type=Path, help="write the JSON here instead of a summary to the terminal")
    options = parser.parse_args(arguments)
    results = _in_environment(options)
    if options.out is None:
        _summary(results)
    return 0


def _in_environment(options: argparse.Namespace) -> dict[str, Any]:
    sources = options.sources or releases.fetch(releases.named(options.release))
    with tempfile.TemporaryDirectory() as folder:
        out = options.out or Path(folder) / "replay.json"
        command = ["-m", "engine_overlay.verify.replay", "--out", str(Path(out).resolve())]
        for case in options.case:
            command += ["--case", case]
        environment.run(command, sources, overlay=not options.off, check=True)
        return json.loads(Path(out).read_text(encoding="utf-8"))


def _summary(results: dict[str, Any]) -> None:
    for case_id, result in results.items():
        for way, difference in result["wrong"].items():
            print(f"{case_id} {way}: {json.dumps(difference, ensure_ascii=False)}")
    total = len(results)
    for mode in ("stream", "full"):
        print(f"{mode}: {sum(r[mode] for r in results.values())} of {total} right")


if __name__ == "__main__":
    sys.exit(main())
