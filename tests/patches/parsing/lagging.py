"""Healthy cases with the text held back by 0 to 16 characters, streamed through the engine found here.

    python -m tests.patches.parsing.lagging FILE

Runs in a process of one release, and writes JSON: the number of streams, and those that are wrong.
test_text_and_ids_in_step judges it.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from engine_overlay.verify import cases as public
from engine_overlay.verify.serving_code import ServingCode

HEALTHY = tuple("009 010 011 024 025 028 029 050 062 069 074 075 080 082 087 093".split())
"""Sixteen cases that every release in range gets right when nothing is held back (009 only with spelled_markers)."""

HOLDBACKS = range(17)
CHUNK_SIZES = (1, 2, 3, 5, 7, 11)
"""Tokens per delta; every stream also comes as one delta."""


def main(out: str) -> None:
    from engine_overlay import engines, status

    code = ServingCode(engines.installed()[0].name)
    found: dict[str, Any] = {"streams": 0, "wrong": {}, "unhealthy": []}
    for case in public.load(only=HEALTHY):
        if any(public.wrong(case, code.stream(case, groups)) for groups in public.cuts(case).values()):
            found["unhealthy"].append(case["id"])
            continue
        for holdback in HOLDBACKS:
            held = {**case, "holdback": holdback, "deltas": "each"}
            total = len(held["token_pieces"])
            for size in (*CHUNK_SIZES, total):
                groups = [min(size, total - start) for start in range(0, total, size)]
                found["streams"] += 1
                difference = public.wrong(held, code.stream(held, groups))
                if difference:
                    found["wrong"][f"{case['id']} held back {holdback} cut {size}"] = difference
    found["states"] = {p["id"]: p["state"] for p in status.report()["patches"]}
    Path(out).write_text(json.dumps(found, ensure_ascii=False, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1])
