"""Spell the markers of healthy cases with ordinary tokens and stream them through the engine found here.

    python -m tests.patches.parsing.spelled FILE

Runs in a process of one release that was started with the overlay, and writes JSON: for each case that is right
with whole markers, and each way to spell them, the cuts at which the answer is wrong. test_spelled_markers judges it.
"""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from engine_overlay.verify import cases as public
from engine_overlay.verify.serving_code import ServingCode

HEALTHY = tuple("010 024 025 027 028 029 031 050 062 063 069 074 075 080 082 085 086 087 091 093 120".split())
"""Cases whose markers are all real, so that spelling them must change nothing."""


def letters(marker: str) -> list[str]:
    return list(marker)


def words(marker: str) -> list[str]:
    """As a sub-word tokenizer would: the brackets apart from the name."""
    head = 2 if marker.startswith(("</", "<|", "<｜")) else 1
    return [marker[:head], marker[head:-1], marker[-1:]]


WAYS: dict[str, Callable[[str], list[str]]] = {"letters": letters, "words": words}


def spell(case: public.Case, way: Callable[[str], list[str]], which: Callable[[int], bool]) -> public.Case:
    """The case with the markers spelled; ``which(n)`` says whether the n-th marker of the answer is."""
    pieces: list[Any] = []
    count = 0
    for piece in case["token_pieces"]:
        if piece in case["atomic"]:
            pieces += way(piece) if which(count) else [piece]
            count += 1
        else:
            pieces.append(piece)
    return {**case, "token_pieces": pieces, "deltas": "each"}


def variants(case: public.Case) -> Iterator[tuple[str, public.Case]]:
    for name, way in WAYS.items():
        yield name, spell(case, way, lambda n: True)
    for seed in range(6):
        mixed = random.Random(f"{case['id']} {seed}")
        picks = [mixed.random() < 0.5 for _ in range(64)]
        yield f"mixed {seed}", spell(case, mixed.choice([letters, words]), picks.__getitem__)


def main(out: str) -> None:
    from engine_overlay import engines, status

    name = engines.installed()[0].name
    code = ServingCode(name)
    found: dict[str, Any] = {"states": {}, "wrong": {}, "healthy": []}
    for case in public.load(only=HEALTHY):
        if any(public.wrong(case, code.stream(case, groups)) for groups in public.cuts(case).values()):
            continue
        found["healthy"].append(case["id"])
        for variant, spelled in variants(case):
            for cut, groups in public.cuts(spelled).items():
                difference = public.wrong(spelled, code.stream(spelled, groups))
                if difference:
                    found["wrong"][f"{case['id']} {variant} cut {cut}"] = difference
    found["states"] = {p["id"]: p["state"] for p in status.report()["patches"]}
    Path(out).write_text(json.dumps(found, ensure_ascii=False, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1])
