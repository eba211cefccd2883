"""Replay cases through the engine found here, every cut and full, and write which ways are wrong.

    python -m tests.patches.needed OUT CASE [CASE ...]

A CASE is the beginning of an id in tests/cases or tests/patches/cases. Runs in a process of one release.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from engine_overlay.verify import cases as public
from engine_overlay.verify.serving_code import ServingCode

FOLDER = Path(__file__).with_name("cases")


def main(out: str, *wanted: str) -> None:
    from engine_overlay import engines, status

    code = ServingCode(engines.installed()[0].name)
    wrong: dict[str, list[str]] = {}
    for case in [*public.load(only=wanted), *public.load(FOLDER, only=wanted)]:
        answers = {way: code.stream(case, groups) for way, groups in public.cuts(case).items()}
        answers["full"] = code.full(case)
        wrong[case["id"]] = [way for way, answer in answers.items() if public.wrong(case, answer)]
    states = {p["id"]: p["state"] for p in status.report()["patches"]}
    Path(out).write_text(json.dumps({"wrong": wrong, "states": states}), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
