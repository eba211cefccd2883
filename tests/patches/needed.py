"""Replay cases through the engine found here, every cut and full, and write which ways are wrong.

    python -m tests.patches.needed OUT '{"": [CASE, ...], "PATCH": [CASE, ...]}'

The cases of a patch are asked while it is undone. A CASE is the beginning of an id in tests/cases or
tests/patches/cases. Runs in a process of one release.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from engine_overlay.verify import cases as public
from engine_overlay.verify.serving_code import ServingCode

FOLDER = Path(__file__).with_name("cases")


def main(out: str, asked: str) -> None:
    from engine_overlay import engines, importer

    name = engines.installed()[0].name
    code = ServingCode(name)
    ledger = importer.overlay.ledgers[name]
    found = {}
    for patch, cases in json.loads(asked).items():
        applied = [i for i in ledger.verdicts if ledger.state(i)[0] == "applied"]
        if patch:
            ledger.undo(patch)
        found[patch] = answers(code, cases) | {"states": {i: ledger.state(i)[0] for i in ledger.verdicts}}
        # An undo takes along what requires the patch.
        for i in applied:
            if ledger.state(i)[0] != "applied":
                ledger.redo(i)
    Path(out).write_text(json.dumps(found), encoding="utf-8")


def answers(code: ServingCode, wanted: list[str]) -> dict[str, Any]:
    wrong: dict[str, list[str]] = {}
    for case in [*public.load(only=tuple(wanted)), *public.load(FOLDER, only=tuple(wanted))]:
        answers = {way: code.stream(case, groups) for way, groups in public.cuts(case).items()}
        answers["full"] = code.full(case)
        wrong[case["id"]] = [way for way, answer in answers.items() if public.wrong(case, answer)]
    return {"wrong": wrong}


if __name__ == "__main__":
    main(*sys.argv[1:])
