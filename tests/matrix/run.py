"""Run the matrix: every pinned release, two at a time, each result kept until something it depends on changes.

    python -m tests.matrix.run                                          all releases
    python -m tests.matrix.run --only vllm-0.33.0,aphrodite_engine-0.24.1 [--show]

``--show`` prints what is not good: refused or unproven patches, cases of spelled markers that are wrong, and cases
that are right on the stock engine and wrong with the overlay. Results lie in the cache, in ``results/<key>/``; the key
is a hash of overlay, patches, start-up file, cases and matrix code.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from tests.matrix import environment, judge, one, releases

AT_ONCE = 2
_OWN_CODE = ("cases", "one", "releases", "replay", "serving_code", "tokens")


def key(with_overlay: bool = True) -> str:
    """Hash of everything a result depends on; without the overlay, of what the stock engine's answers depend on."""
    root, here = environment.ROOT, Path(__file__).parent
    files = [here / f"{name}.py" for name in _OWN_CODE]
    files += [environment.REQUIREMENTS, *sorted((root / "tests" / "cases").glob("*.json"))]
    if with_overlay:
        files += [root / "pyproject.toml"]
        for folder in ("overlay", "patches", "sitecustomize_hooks"):
            files += sorted(path for path in (root / folder).rglob("*") if path.suffix in (".py", ".pth", ".start"))
    digest = hashlib.sha256()
    for file in files:
        digest.update(f"{file.relative_to(root)}\0".encode() + file.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


def result(release: releases.Release, folder: str) -> dict[str, Any]:
    """The kept result of the release, or that of a run now. Raises subprocess.CalledProcessError."""
    kept = releases.cache() / "results" / folder / f"{release.label}.json"
    if not kept.is_file():
        stock = releases.cache() / "results" / f"stock-{key(with_overlay=False)}" / f"{release.label}.json"
        one.write(kept, one.run(release.label, stock))
    return json.loads(kept.read_text(encoding="utf-8"))


def results(
    chosen: Iterable[releases.Release], tell: Callable[[str], None] = lambda line: None
) -> dict[str, dict[str, Any]]:
    """The results of the releases by label, computed where none is kept; ``tell`` gets a line for each."""
    chosen = list(chosen)
    environment.python()
    releases.fetch_all([release for release in chosen if not release.sources.is_dir()])
    folder = key()

    def measured(release: releases.Release) -> dict[str, Any]:
        start = time.monotonic()
        try:
            found = result(release, folder)
        except subprocess.CalledProcessError as error:
            tell(f"{release.label}: failed with exit status {error.returncode}")
            raise
        tell(f"{summary(found)} ({time.monotonic() - start:.0f} s)")
        return found

    with ThreadPoolExecutor(AT_ONCE) as pool:
        return dict(zip((r.label for r in chosen), pool.map(measured, chosen), strict=True))


def summary(found: dict[str, Any]) -> str:
    """One line: cases right off and on, and how many patches are what."""
    total = len(found["on"]["cases"])
    counts = [f"{m} {judge.right(found, 'off', m)} -> {judge.right(found, 'on', m)}" for m in ("stream", "full")]
    words = [judge.cell(found, i).word for i in found["on"]["patches"]]
    cells = ", ".join(f"{words.count(word)} {word}" for word in sorted(set(words)))
    return f"{found['release']}: {', '.join(counts)} of {total} right; {cells}; {len(judge.worse(found))} worse"


def shortcomings(found: dict[str, Any]) -> list[str]:
    """A line for everything in a result that is not good."""
    lines = [f"{i} {c.word}: {c.why}" for i in found["on"]["patches"] if (c := judge.cell(found, i)).word not in judge.GOOD]
    lines += [f"problem: {line}" for line in found["on"]["problems"]]
    lines += [f"off: {line}" for line in judge.off_unclean(found)]
    lines += [f"undo: {line}" for line in judge.undo_incomplete(found)]
    lines += [f"spelled: {line}" for line in judge.spelled_wrong(found)]
    return lines + [f"worse: {line}" for line in judge.worse(found)]


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.matrix.run", description=__doc__.partition("\n")[0])
    parser.add_argument("--only", metavar="LABELS", help="only these releases, separated by commas")
    parser.add_argument("--show", action="store_true", help="print what is not good")
    options = parser.parse_args(arguments)
    found = results(releases.selected(options.only), tell=lambda line: print(line, flush=True))
    if options.show:
        for label, release_result in found.items():
            for line in shortcomings(release_result):
                print(f"{label}: {line}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
