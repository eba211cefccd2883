"""Run the serving layer of every release, overlay off and on, two releases at a time; results are kept.

    python -m tests.serving.run [--only vllm-0.33.0,aphrodite_engine-0.24.1] [--show]

``--show`` prints what is wrong with the overlay on, and every answer to whole markers that differs from the
stock engine's. See :mod:`tests.serving.requests` for what is asked.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable
from pathlib import Path

from engine_overlay.verify import releases
from tests.matrix import store
from tests.matrix.store import Result, Tell
from tests.serving import one
from tests.serving.requests import all_requests


def _files() -> list[Path]:
    here = Path(__file__).parent
    files = [
        here / f"{name}.py" for name in ("client", "one", "requests", "scripted_core", "server", "tokens")
    ]
    return [*files, *store.overlay_files()]


def results(chosen: Iterable[releases.Release], tell: Tell = lambda line: None) -> dict[str, Result]:
    """The results of the releases by label, computed where none is kept; ``tell`` gets a line for each."""
    return store.all_of(chosen, f"serving-{store.key(_files())}", lambda r: one.run(r.label), summary, tell)


def summary(found: Result) -> str:
    """One line: requests right off and on, by what they send."""
    counts = []
    for form in ("whole", "spelled", "mention"):
        names = [request.name for request in all_requests() if request.form == form]
        off, on = (
            sum(not found[side]["requests"][name]["wrong"] for name in names) for side in ("off", "on")
        )
        counts.append(f"{form} {off} -> {on} of {len(names)}")
    return f"{found['release']}: {', '.join(counts)} right; {len(changed_whole(found))} whole changed"


def changed_whole(found: Result) -> list[str]:
    """Responses to whole markers that are not byte for byte those of the stock engine, but for ids and
    times.
    """
    whole = [request.name for request in all_requests() if request.form == "whole"]
    return [f"{name}: {found['different'][name]}" for name in whole if name in found["different"]]


def worse(found: Result) -> list[str]:
    """Requests that are right off and wrong on."""
    off, on = found["off"]["requests"], found["on"]["requests"]
    return [
        f"{name}: {answer['wrong']}"
        for name, answer in on.items()
        if answer["wrong"] and not off[name]["wrong"]
    ]


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.serving.run", description=__doc__.partition("\n")[0]
    )
    parser.add_argument("--only", metavar="LABELS", help="only these releases, separated by commas")
    parser.add_argument("--show", action="store_true", help="print what is wrong or changed")
    options = parser.parse_args(arguments)
    found = results(releases.selected(options.only), tell=lambda line: print(line, flush=True))
    for label, result in found.items() if options.show else ():
        lines = [f"changed: {line}" for line in changed_whole(result)]
        lines += [
            f"wrong: {name}: {a['wrong']}" for name, a in result["on"]["requests"].items() if a["wrong"]
        ]
        for line in lines:
            print(f"{label}: {line}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
