"""Run an engine's own parser tests with the overlay off and on, and compare how each of them ends.

    python -m tests.engine_suite.compare                         both releases
    python -m tests.engine_suite.compare --only vllm-0.33.0      one of them
    python -m tests.engine_suite.compare --fresh                 also run again what is off

What was seen with the overlay off is kept in the cache: it does not depend on this checkout.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass

from engine_overlay.verify.releases import Release, named
from tests.engine_suite import runs
from tests.engine_suite.runs import Run
from tests.engine_suite.sources import RELEASES


@dataclass(frozen=True)
class Comparison:
    """Both runs of one release."""

    release: Release
    off: Run
    on: Run

    @property
    def differences(self) -> dict[str, tuple[str, str]]:
        """Node id -> (outcome off, outcome on), for every test that did not end alike."""
        off, on = self.off.outcomes, self.on.outcomes
        absent = "not run"
        pairs = {node: (off.get(node, absent), on.get(node, absent)) for node in sorted({*off, *on})}
        return {node: pair for node, pair in pairs.items() if pair[0] != pair[1]}

    def lines(self) -> list[str]:
        """The result as text: counts of both runs, then every id that differs with the reasons."""
        lines = []
        for name, run in (("off", self.off), ("on", self.on)):
            counts = ", ".join(f"{number:,} {outcome}" for outcome, number in sorted(run.counts.items()))
            applied = sum(p["state"] == "applied" for p in run.overlay["patches"]) if run.overlay else 0
            lines.append(f"{self.release.label} {name:3}: {counts}; {applied} patches applied")
        lines.append(f"{self.release.label}: {len(self.differences)} tests differ")
        for node, (off, on) in self.differences.items():
            lines.append(f"  {node}: off {off}, on {on}")
            lines += [f"      {side}: {r}" for side, r in self._reasons(node) if r]
        return lines

    def _reasons(self, node: str) -> tuple[tuple[str, str | None], ...]:
        return ("off", self.off.reasons.get(node)), ("on", self.on.reasons.get(node))


def compare(release: Release, fresh: bool = False) -> Comparison:
    """Run the release's tests with the overlay on, and off unless that result is in the cache."""
    return Comparison(release, runs.off(release, fresh), runs.run(release, overlay=True))


def main(arguments: list[str] | None = None) -> int:
    """Print the comparison of each release; 1 when any test differs."""
    summary = __doc__.partition("\n")[0]
    parser = argparse.ArgumentParser(prog="python -m tests.engine_suite.compare", description=summary)
    parser.add_argument("--only", metavar="LABEL", choices=RELEASES, help="one release instead of all")
    parser.add_argument("--fresh", action="store_true", help="run again with the overlay off, too")
    options = parser.parse_args(arguments)
    different = 0
    for label in [options.only] if options.only else RELEASES:
        result = compare(named(label), options.fresh)
        print("\n".join(result.lines()), flush=True)
        different += len(result.differences)
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
