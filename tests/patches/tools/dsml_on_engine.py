"""DSML as models write it, through the serving code of the engine found here: with a patch, and with it undone.

    python -m tests.patches.tools.dsml_on_engine FILE [PATCH]

Writes JSON: the states of the patches, and for each side ("with it", and "undone" where a PATCH is named) the cases
that are wrong, by way. With the patch undone only those cases are asked that it is for.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from engine_overlay.verify import cases as public
from engine_overlay.verify.serving_code import ServingCode
from tests.text import dsml_cases

Wrong = dict[str, dict[str, Any]]

_NEW = [*dsml_cases.MALFORMED, *dsml_cases.WRAPPERS]
"""Asked in every cut into two deltas; the others in the usual cuts."""


def wrong(code: ServingCode, cases: Iterable[dict[str, Any]], every_cut: Iterable[dict[str, Any]] = ()) -> Wrong:
    found: Wrong = {}
    for case in cases:
        cuts = public.every_cut(case) if case in every_cut else public.cuts(case)
        answers = {way: code.stream(case, groups) for way, groups in cuts.items()}
        answers["full"] = code.full(case)
        ways = {way: difference for way, answer in answers.items() if (difference := public.wrong(case, answer))}
        if ways:
            found[case["id"]] = ways
    return found


def main(out: str, patch: str = "") -> None:
    from engine_overlay import commit, engines, status

    name = engines.installed()[0].name
    code = ServingCode(name)
    known = code._module("tool_parsers").ToolParserManager.list_registered()
    cases = [case for case in dsml_cases.ALL if case["tool_parser"] in known]
    seen: dict[str, Any] = {"with it": wrong(code, cases, _NEW), "asked": len(cases)}
    seen["states"] = {p["id"]: p["state"] for p in status.report()["patches"]}
    if patch:
        commit.undo(patch)
        seen["undone"] = wrong(code, dsml_cases.MALFORMED)
    Path(out).write_text(json.dumps(seen, ensure_ascii=False), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
