"""Replay the public cases through the chat serving code and the parsers of the engine that can be imported here.

    python -m engine_overlay.verify.replay --out FILE [--case ID ...] [--every-cut] [--overlay]

Per case and way to cut it, the answer is right or the wrong fields are written down. Without ``--overlay``
it is up to the environment of this process whether the overlay is active.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from engine_overlay.verify import cases as public


def replay_all(cases: list[public.Case], *, every_cut: bool = False) -> dict[str, Any]:
    """Replay the cases on the engine that this process can import.

    Returns case id -> {"stream": bool, "full": bool, "wrong": {way: {field: what came}}}; the ways are the
    numbers of tokens per delta, ``all``, ``own``, with ``every_cut`` ``N|`` for two deltas cut behind N tokens, and
    ``full``.
    """
    from engine_overlay.verify.serving_code import ServingCode

    code = ServingCode(engine_name())
    ways = public.every_cut if every_cut else public.cuts
    return {case["id"]: replay_case(code, case, ways(case)) for case in cases}


def replay_case(code: Any, case: public.Case, cuts: Mapping[str, list[int]] | None = None) -> dict[str, Any]:
    bad: dict[str, Any] = {}
    cuts = public.cuts(case) if cuts is None else cuts
    ways = {way: (lambda groups=groups: code.stream(case, groups)) for way, groups in cuts.items()}
    ways["full"] = lambda: code.full(case)
    for way, answer in ways.items():
        try:
            difference = public.wrong(case, answer())
        except Exception as error:  # a parser may raise anything; that is an answer a client would not get
            difference = {"raised": f"{type(error).__name__}: {error}"[:300]}
        if difference:
            bad[way] = difference
    return {"stream": not set(bad) - {"full"}, "full": "full" not in bad, "wrong": bad}


def engine_name() -> str:
    """The engine package that can be imported here. Raises LookupError when there is none."""
    for name in ("vllm", "aphrodite"):
        if importlib.util.find_spec(name) is not None:
            return name
    raise LookupError("no engine can be imported here: neither vllm nor aphrodite")


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--case", action="append", default=[], help="only cases whose id starts with this")
    parser.add_argument("--every-cut", action="store_true", help="also every cut into two deltas")
    parser.add_argument("--out", type=Path, required=True, help="write the JSON here")
    parser.add_argument("--overlay", action="store_true", help="put the overlay in, where no start-up file did")
    options = parser.parse_args(arguments)
    if options.overlay:
        from engine_overlay import importer

        importer.install("api")
    results = replay_all(public.load(only=tuple(options.case)), every_cut=options.every_cut)
    options.out.write_text(json.dumps(results, ensure_ascii=False, indent=1), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
