"""Replay the public cases through the chat serving code and parsers of one engine release.

    python -m tests.matrix.replay --release vllm-0.33.0 [--off] [--case 001 --case 076] [--out FILE]
    python -m tests.matrix.replay --sources FOLDER       (any folder that holds the package vllm or aphrodite)

The release runs in the engine environment (:mod:`tests.matrix.environment`), with the overlay active there
through its start-up file, or switched off by ``--off``. Per case and way to cut it, the answer is right or
the wrong fields are shown. Exit status 0 also when cases are wrong: stock releases have faults.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

from tests.matrix import cases as public


def replay_all(cases: list[public.Case]) -> dict[str, Any]:
    """Replay the cases on the engine that this process can import.

    Returns case id -> {"stream": bool, "full": bool, "wrong": {way: {field: what came}}}; the ways are the
    numbers of tokens per delta, ``all``, ``own`` and ``full``.
    """
    from tests.matrix.serving_code import ServingCode

    code = ServingCode(engine_name())
    return {case["id"]: replay_case(code, case) for case in cases}


def replay_case(code: Any, case: public.Case) -> dict[str, Any]:
    bad: dict[str, Any] = {}
    ways = {
        way: (lambda groups=groups: code.stream(case, groups)) for way, groups in public.cuts(case).items()
    }
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
    raise LookupError("no engine on PYTHONPATH: neither vllm nor aphrodite can be imported")


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.matrix.replay", description=__doc__.partition("\n")[0]
    )
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--release", help="a release of tests/matrix/releases.json, like vllm-0.33.0")
    where.add_argument("--sources", type=Path, help="folder that holds the engine's package")
    where.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--off", action="store_true", help="run with ENGINE_OVERLAY=off")
    parser.add_argument("--case", action="append", default=[], help="only cases whose id starts with this")
    parser.add_argument("--out", type=Path, help="write the JSON here instead of a summary to the terminal")
    options = parser.parse_args(arguments)
    if options.here:
        found = public.load(only=tuple(options.case))
        Path(options.out).write_text(
            json.dumps(replay_all(found), ensure_ascii=False, indent=1), encoding="utf-8"
        )
        return 0
    results = _in_environment(options)
    if options.out is None:
        _summary(results)
    return 0


def _in_environment(options: argparse.Namespace) -> dict[str, Any]:
    import tempfile

    from tests.matrix import environment, releases

    sources = options.sources or releases.fetch(releases.named(options.release))
    with tempfile.TemporaryDirectory() as folder:
        out = options.out or Path(folder) / "replay.json"
        command = ["-m", "tests.matrix.replay", "--here", "--out", str(Path(out).resolve())]
        for case in options.case:
            command += ["--case", case]
        environment.run(command, sources, overlay=not options.off, check=True)
        return json.loads(Path(out).read_text(encoding="utf-8"))


def _summary(results: dict[str, Any]) -> None:
    for case_id, result in results.items():
        for way, difference in result["wrong"].items():
            print(f"{case_id} {way}: {json.dumps(difference, ensure_ascii=False)}")
    total = len(results)
    for mode in ("stream", "full"):
        print(f"{mode}: {sum(r[mode] for r in results.values())} of {total} right")


if __name__ == "__main__":
    sys.exit(main())
