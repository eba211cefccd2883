"""Everything the matrix asks of one engine release: an off run and an on run, each in a process of its own.

    python -m tests.matrix.one vllm-0.33.0 --out FILE

Off (``ENGINE_OVERLAY=off``): the public cases, proof that nothing of the overlay was imported, and each
patch's probe. On (through the start-up file): the cases again; for each patch the gate's verdict, its
state, and the probe with it, without it (undone) and with it again; and, with everything undone, the cases
of spelled markers once more. Patches that are off by default are switched on for it, so that they are proven
like the others.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from engine_overlay.verify import cases as public
from engine_overlay.verify.replay import engine_name, replay_all
from tests.matrix.store import write


def run(label: str, off_cases: Path | None = None) -> dict[str, Any]:
    """The result of the release: ``{"release", "engine", "off": {...}, "on": {...}}``.

    ``off_cases`` names a file where the off answers of the same release and cases are kept between runs.
    Raises subprocess.CalledProcessError when a process fails.
    """
    from engine_overlay.verify import releases
    from tests.matrix import environment

    release = releases.named(label)
    sources = releases.fetch(release)
    result: dict[str, Any] = {"release": release.label, "engine": release.engine}
    with tempfile.TemporaryDirectory() as folder:
        for side in ("off", "on"):
            out = Path(folder) / f"{side}.json"
            command = ["-m", "tests.matrix.one", label, "--side", side, "--out", str(out)]
            known = side == "off" and off_cases is not None and off_cases.is_file()
            if known:
                command.append("--no-cases")
            more = {"ENGINE_OVERLAY_ENABLE": ",".join(off_by_default())}
            environment.run(command, sources, overlay=side == "on", check=True, more=more)
            result[side] = json.loads(out.read_text(encoding="utf-8"))
            if known:
                result[side]["cases"] = json.loads(off_cases.read_text(encoding="utf-8"))
            elif side == "off" and off_cases is not None:
                write(off_cases, result[side]["cases"])
    return result


def off_by_default() -> list[str]:
    """Ids of the built-in patches that are off by default."""
    from engine_overlay import catalog

    entries = catalog.load(third_party=False).entries
    return sorted(i for i, entry in entries.items() if not entry.patch.default)


def off_side(replay: bool) -> dict[str, Any]:
    answers = replay_all(public.load()) if replay else {}
    if not replay:
        __import__(engine_name())
    ours = {name for name in sys.modules if name.partition(".")[0] in ("engine_overlay", OWN_START)}
    # What this process itself is: the harness.
    loaded = sorted(name for name in ours if name != "engine_overlay" and not name.startswith(HARNESS))
    finders = [type(finder).__name__ for finder in sys.meta_path if hasattr(finder, "__engine_overlay__")]

    from engine_overlay import catalog, engines

    engine = engines.locate(engine_name())
    probes = {i: finding(entry.probe, engine) for i, entry in catalog.load().entries.items()}
    return {"cases": answers, "loaded": loaded, "finders": finders, "probes": probes}


OWN_START = "_engine_overlay_startup"
HARNESS = "engine_overlay.verify"


def on_side() -> dict[str, Any]:
    answers = replay_all(public.load())

    from engine_overlay import importer, status

    ledger = importer.overlay.ledgers[engine_name()]
    for name in sorted(ledger.wanted_modules()):
        __import__(name)
    report = status.report()
    patches = {}
    for patch in report["patches"]:
        kept = {key: patch[key] for key in ("verdict", "reason", "state", "state_reason")}
        kept["detail"] = ledger.verdicts[patch["id"]].detail
        kept["default"] = ledger.entry(patch["id"]).patch.default
        patches[patch["id"]] = kept | probed(ledger, patch["id"])
    left = ledger.undo_all()
    for i, patch in patches.items():
        patch["all_undone"] = finding(ledger.entry(i).probe, ledger.engine)
    spelled = [case for case in public.load() if public.is_spelled(case["kind"])]
    return {
        "way": report["way"],
        "version": report["engine"]["version"],
        "problems": report["problems"],
        "patches": patches,
        "cases": answers,
        "undone": {"left": left, "cases": replay_all(spelled)},
    }


def probed(ledger: Any, patch_id: str) -> dict[str, Any]:
    """The probe's findings: as things are, and for an applied patch also after undo and after redo."""
    probe = ledger.entry(patch_id).probe
    seen = {"on": finding(probe, ledger.engine)}
    if ledger.state(patch_id)[0] != "applied":
        return seen
    applied = [i for i in ledger.verdicts if ledger.state(i)[0] == "applied"]
    left = ledger.undo(patch_id)
    seen |= {"undone": finding(probe, ledger.engine), "left": left}
    # An undo takes along what requires the patch.
    for i in applied:
        if ledger.state(i)[0] != "applied":
            ledger.redo(i)
    seen |= {"redone": finding(probe, ledger.engine), "redone_state": ledger.state(patch_id)[0]}
    return seen


def finding(probe: Any, engine: Any) -> dict[str, str]:
    try:
        found = probe(engine)
    except Exception as error:
        return {"outcome": "RAISED", "evidence": f"{type(error).__name__}: {error}"[:300]}
    return {"outcome": found.outcome.value, "evidence": found.evidence}


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.matrix.one", description=__doc__.partition("\n")[0]
    )
    parser.add_argument("release", help="label of a pinned release")
    parser.add_argument("--out", type=Path, required=True, help="file for the JSON")
    parser.add_argument("--side", choices=("off", "on"), help=argparse.SUPPRESS)
    parser.add_argument("--no-cases", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.side is None:
        result = run(options.release)
    else:
        result = off_side(not options.no_cases) if options.side == "off" else on_side()
    write(options.out, result)
    return 0


if __name__ == "__main__":
    sys.exit(main())
