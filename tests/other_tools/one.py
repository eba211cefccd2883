"""One process of an engine beside other tools: public cases with everything on, what is in, and the cases after undo.

    python -m tests.other_tools.one --order ORDER --tools NAMES --out FOLDER [--every N]

``before``: the tool is on before the engine is imported (by its own command where it has one). ``between``: the
engine's package, and so the overlay, comes first, the modules with the patches' targets after the tool. ``after``: all
is imported and patched. ``late``: all is imported and the tool is on, then the overlay comes, as by the plug-in.
``alone``: no tool. With ``after`` and ``late`` each tool has a fork of one process. Writes FOLDER/ORDER-TOOL.json;
``--every N`` takes each N-th case only.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import traceback
from pathlib import Path
from typing import Any

from tests.other_tools import tools

ORDERS: dict[str, tuple[str, ...]] = {
    "alone": ("none",),
    "before": ("wrapt", "ddtrace", "opentelemetry", "coverage", "beartype"),
    "between": ("wrapt", "ddtrace", "opentelemetry"),
    "after": ("wrapt", "ddtrace", "opentelemetry", "coverage", "line_profiler", "reload"),
    "late": ("wrapt", "ddtrace", "opentelemetry", "coverage", "line_profiler"),
}


def result(cases: list[Any], tool: str) -> dict[str, Any]:
    """``{"on": answers, "beside": whether the tool is on, "patches", "problems", "twice": [...], "left": [...],
    "off": answers after undo}``.
    """
    from engine_overlay import commit, importer, status, wrappers
    from engine_overlay.verify.replay import replay_all

    answers = replay_all(cases)
    report = status.report()
    beside = tools.is_on(tool, engine_package())
    twice = []
    for ledger in importer.overlay.ledgers.values():
        for changes in ledger.journal.values():
            for change in changes:
                ids = [getattr(link, wrappers.MARK) for link in wrappers.chain(change.now()) if wrappers.is_ours(link)]
                if len(ids) != len(set(ids)):
                    twice.append(f"{wrappers.name_of(change.now())}: {ids}")
    left = commit.undo_all()
    patches = {p["id"]: [p["verdict"], p["state"], p["reason"], p["state_reason"]] for p in report["patches"]}
    return {
        "on": answers,
        "beside": beside,
        "patches": patches,
        "problems": report["problems"],
        "twice": twice,
        "left": left,
        "off": replay_all(cases),
    }


def engine_modules(engine: str) -> None:
    """Import what the cases need, and so what the patches change there."""
    from engine_overlay.verify.serving_code import ServingCode

    ServingCode(engine)
    for name in tools.MODULES:
        __import__(f"{engine}.{name}")


def without_overlay() -> None:
    """Take the start-up file's finder away, as in a process that reads no start-up files."""
    import _engine_overlay_startup as waiter

    sys.meta_path.remove(waiter)


def in_fork(work: Any) -> None:
    pid = os.fork()
    if pid:
        status = os.waitpid(pid, 0)[1]
        if status:
            raise RuntimeError(f"a fork ended with {status}")
        return
    code = 1
    try:
        work()
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        os._exit(code)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--order", choices=ORDERS, required=True)
    parser.add_argument("--tools", required=True)
    parser.add_argument("--by-command", action="store_true", help="the tool's own command has started this process")
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    names = options.tools.split(",")

    if options.order == "late":
        without_overlay()
    elif options.order == "before" and not options.by_command:
        tools.ON[names[0]](engine_package())
    engine = engine_package()
    if options.order == "between":
        __import__(engine)
        tools.ON[names[0]](engine)

    from engine_overlay.verify import cases as public

    cases = public.load()[:: options.every]

    def write(name: str) -> None:
        file = options.out / f"{options.order}-{name}.json"
        file.write_text(json.dumps(result(cases, name)), encoding="utf-8")

    if options.order not in ("after", "late"):
        write(names[0])
        return
    engine_modules(engine)
    for name in names:

        def work(name: str = name) -> None:
            tools.ON[name](engine)
            if options.order == "late":
                from engine_overlay import importer

                importer.install("plugin")
            write(name)

        in_fork(work)


def engine_package() -> str:
    """The engine that PYTHONPATH has here, without asking any finder for it."""
    return next(name for name in ("vllm", "aphrodite") if any(Path(entry, name).is_dir() for entry in sys.path))


if __name__ == "__main__":
    main()
