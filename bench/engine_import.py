"""What the overlay costs where an engine is imported: CPU time of importing its API server, on and off.

    python -m bench.engine_import [--rounds N] [--json]

On and off take turns. ``ratio`` is on to off, of the fastest import of each; ``median`` that of the medians.
Before the first round every kind of process runs once, so that no byte code is missing.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
MODULE = "vllm.entrypoints.openai.api_server"


def measure(rounds: int) -> dict[str, Any]:
    """Returns plain data; times in seconds of CPU, user and system, of the whole process."""
    from tests.live import environment

    python = environment.prepare(overlay=True)
    variables = environment.variables() | {"VLLM_LOGGING_LEVEL": "ERROR", "ENGINE_OVERLAY_LOG": "quiet"}
    kinds = {"off": variables | {"ENGINE_OVERLAY": "off"}, "on": variables | {"ENGINE_OVERLAY": "on"}}
    times: dict[str, list[float]] = {kind: [] for kind in kinds}
    for number in range(-1, rounds):
        for kind in kinds if number % 2 == 0 else reversed(kinds):
            spent = _cpu([str(python), "-c", f"import {MODULE}"], kinds[kind])
            if number >= 0:
                times[kind].append(spent)
    least = {kind: min(values) for kind, values in times.items()}
    median = {kind: statistics.median(values) for kind, values in times.items()}
    return {
        "module": MODULE,
        "rounds": rounds,
        "off_s": round(least["off"], 3),
        "on_s": round(least["on"], 3),
        "ratio": round(least["on"] / least["off"], 4),
        "median": round(median["on"] / median["off"], 4),
        "all_s": {kind: [round(value, 2) for value in values] for kind, values in times.items()},
    }


def _cpu(command: list[str], variables: dict[str, str]) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(command, cwd=ROOT / "bench", env=variables, capture_output=True, text=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        raise RuntimeError(f"engine-overlay: bench: {command[-1]!r} failed; it says: {done.stderr[-2000:]}")
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> int:
    summary = __doc__.splitlines()[0]
    parser = argparse.ArgumentParser(prog="python -m bench.engine_import", description=summary)
    parser.add_argument("--rounds", type=int, default=5, help="imports of each kind (default: 5)")
    parser.add_argument("--json", action="store_true", help="print the numbers as JSON")
    args = parser.parse_args()
    result = measure(args.rounds)
    if args.json:
        print(json.dumps(result, indent=1))
    else:
        print(
            f"import {MODULE}: off {result['off_s']:.2f} s, on {result['on_s']:.2f} s of CPU, "
            f"ratio {result['ratio']:.3f} (of medians {result['median']:.3f})"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
