"""Search for a dialogue that the engine found here gets wrong; print the smallest one as a case file.

    python -m tests.properties.search FORMAT [--examples N] [--seed N]

Runs in a process of one release (see :mod:`tests.matrix.environment`). Exit status 1 when one was found.
"""

from __future__ import annotations

import argparse
import json
import sys
import time

from hypothesis import HealthCheck, Phase, Verbosity, given, seed, settings

from tests.matrix import cases as public
from tests.properties import dialogues
from tests.properties.direct import Direct


class Wrong(AssertionError):
    """Carries the case and what was wrong with it."""


def search(code: Direct, form: str, examples: int, start: int) -> Wrong | None:
    """The smallest wrong dialogue among ``examples``, or None."""

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
    def check(made):
        case, cuts = made
        for way, answer in code.both(case, cuts).items():
            difference = public.wrong(case, answer)
            if difference:
                raise Wrong(json.dumps({"way": way, "wrong": difference, "case": case}, ensure_ascii=False))

    try:
        check()
    except Wrong as found:
        return found
    return None


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("form", choices=sorted(dialogues.FORMATS))
    parser.add_argument("--examples", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    from engine_overlay import engines

    code = Direct(engines.installed()[0].name)
    form = dialogues.FORMATS[options.form]
    if not code.covers(form.reasoning_parser, form.tool_parser):
        print(f"{options.form}: this release does not build these parsers on its parser engine")
        return 0
    begin = time.process_time()
    found = search(code, options.form, options.examples, options.seed)
    spent = time.process_time() - begin
    if found is None:
        print(f"{options.form}: {options.examples} dialogues right in both modes ({spent:.0f} s of CPU time)")
        return 0
    what = json.loads(str(found))
    print(f"{options.form}: wrong in {what['way']}: {json.dumps(what['wrong'], ensure_ascii=False)}")
    print(json.dumps(what["case"], ensure_ascii=False, indent=1))
    return 1


if __name__ == "__main__":
    sys.exit(main())
