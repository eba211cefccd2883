"""Run the matrix: every pinned release, two at a time, each result kept until something it depends on
changes.

    python -m tests.matrix.run                                          all releases
    python -m tests.matrix.run --only vllm-0.33.0,aphrodite_engine-0.24.1 [--show]

``--show`` prints what is not good: refused or unproven patches, cases of spelled markers that are wrong,
and cases that are right on the stock engine and wrong with the overlay. Results lie in the cache, in
``results/<key>/``; the key is a hash of overlay, patches, start-up file, cases and matrix code.
OVERLAY_JOBS sets the number of releases at a time.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable
from pathlib import Path

from engine_overlay.verify import releases
from tests.matrix import environment, judge, one, store
from tests.matrix.store import Result, Tell

_REPLAY = ("cases", "replay", "serving_code", "tokens")


def _stock_files() -> list[Path]:
    """What the answers of the stock engine depend on, beside the release itself."""
    harness = environment.ROOT / "overlay/verify"
    return [harness / f"{name}.py" for name in _REPLAY] + sorted(
        (environment.ROOT / "tests/cases").glob("*.json")
    )


def results(chosen: Iterable[releases.Release], tell: Tell = lambda line: None) -> dict[str, Result]:
    """The results of the releases by label, computed where none is kept; ``tell`` gets a line for each."""
    stock = f"stock-{store.key(_stock_files())}"
    folder = f"matrix-{store.key([*_stock_files(), Path(one.__file__), *store.overlay_files()])}"
    return store.all_of(chosen, folder, lambda r: one.run(r.label, store.place(stock, r)), summary, tell)


def summary(found: Result) -> str:
    """One line: cases right off and on, and how many patches are what."""
    total = len(found["on"]["cases"])
    counts = [
        f"{m} {judge.right(found, 'off', m)} -> {judge.right(found, 'on', m)}" for m in ("stream", "full")
    ]
    words = [judge.cell(found, i).word for i in found["on"]["patches"]]
    cells = ", ".join(f"{words.count(word)} {word}" for word in sorted(set(words)))
    told = f"{', '.join(counts)} of {total} right; {cells}; {len(judge.worse(found))} worse"
    return f"{found['release']}: {told}"


def shortcomings(found: Result) -> list[str]:
    """A line for everything in a result that is not good."""
    cells = {i: judge.cell(found, i) for i in found["on"]["patches"]}
    lines = [f"{i} {cell}" for i, cell in cells.items() if cell.word not in judge.GOOD]
    lines += [f"problem: {line}" for line in found["on"]["problems"]]
    lines += [f"off: {line}" for line in judge.off_unclean(found)]
    lines += [f"undo: {line}" for line in judge.undo_incomplete(found)]
    lines += [f"spelled: {line}" for line in judge.spelled_wrong(found)]
    return lines + [f"worse: {line}" for line in judge.worse(found)]


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.matrix.run", description=__doc__.partition("\n")[0]
    )
    parser.add_argument("--only", metavar="LABELS", help="only these releases, separated by commas")
    parser.add_argument("--show", action="store_true", help="print what is not good")
    options = parser.parse_args(arguments)
    found = results(releases.selected(options.only), tell=lambda line: print(line, flush=True))
    for label, result in found.items() if options.show else ():
        for line in shortcomings(result):
            print(f"{label}: {line}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
