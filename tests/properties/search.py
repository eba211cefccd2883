"""Search for a dialogue that the engine found here gets wrong; print the smallest one as a case file.

    python -m tests.properties.search FORMAT [FORMAT ...] [--examples N] [--seed N] [--out FILE]

Runs in a process of one release (see :mod:`tests.matrix.environment`); ``all`` stands for every format. The
examples are spread over those formats that the release builds on its parser engine. Exit status 1 when a wrong
dialogue was found. ``--out`` also writes what was found as JSON: ``{"examples": {format: N}, "wrong": {format:
{"way", "wrong", "case"}}, "states": {patch: state}}``.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, Phase, Verbosity, given, seed, settings

from tests.properties import dialogues, judge
from tests.properties.direct import Direct


class Wrong(AssertionError):
    """Carries the case and what was wrong with it."""


def search(code: Direct, form: str, examples: int, start: int) -> tuple[int, dict[str, Any] | None]:
    """(the number of dialogues that were asked, the smallest wrong one as {"way", "wrong", "case"} or None)."""
    asked = 0

    @seed(start)
    @settings(
        max_examples=examples,
        deadline=None,
        database=None,
        verbosity=Verbosity.quiet,
        suppress_health_check=list(HealthCheck),
        phases=(Phase.generate, Phase.shrink),
        report_multiple_bugs=False,
    )
    @given(dialogues.dialogues(form))
    def check(made: tuple[dict[str, Any], list[int]]) -> None:
        nonlocal asked
        asked += 1
        case, cuts = made
        try:
            found = judge.verdict(case, code.both(case, cuts))
        except Exception as error:  # a parser may raise anything; that is an answer a client would not get
            found = {"way": "raised", "wrong": f"{type(error).__name__}: {error}"}
        if found:
            raise Wrong(json.dumps({**found, "case": case}, ensure_ascii=False))

    try:
        check()
    except Wrong as found:
        return asked, json.loads(str(found))
    return asked, None


def shares(code: Direct, forms: list[str], examples: int) -> Iterator[tuple[str, int]]:
    """The formats that this release covers, each with its share of the examples."""
    names = [n for n in forms if code.covers(dialogues.FORMATS[n].reasoning_parser, dialogues.FORMATS[n].tool_parser)]
    for left, name in enumerate(names):
        yield name, (examples + left) // len(names)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("forms", nargs="+", metavar="FORMAT", choices=["all", *sorted(dialogues.FORMATS)])
    parser.add_argument("--examples", type=int, default=2000, help="of all formats together")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    from engine_overlay import engines, status

    code = Direct(engines.installed()[0].name)
    result: dict[str, Any] = {"examples": {}, "wrong": {}}
    forms = sorted(dialogues.FORMATS) if "all" in options.forms else options.forms
    for name, share in shares(code, forms, options.examples):
        begin = time.process_time()
        asked, found = search(code, name, share, options.seed)
        spent = time.process_time() - begin
        result["examples"][name] = asked
        if found is None:
            print(f"{name}: {asked} dialogues right, streaming and full alike ({spent:.0f} s of CPU time)")
            continue
        result["wrong"][name] = found
        print(f"{name}: wrong ({found['way']}): {json.dumps(found['wrong'], ensure_ascii=False)}")
        print(json.dumps(found["case"], ensure_ascii=False, indent=1))
    if not result["examples"]:
        print("this release builds none of these parsers on its parser engine")
    result["states"] = {patch["id"]: patch["state"] for patch in status.report()["patches"]}
    if options.out:
        options.out.write_text(json.dumps(result, ensure_ascii=False, indent=1), encoding="utf-8")
    return 1 if result["wrong"] else 0


if __name__ == "__main__":
    sys.exit(main())
