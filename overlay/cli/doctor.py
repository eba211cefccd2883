"""``engine-overlay doctor``: each patch's probe in a process without the overlay, with it, and after undo."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from enum import Enum
from json import dumps, loads
from typing import Annotated, Any

import typer

from engine_overlay import catalog, engines, settings, verdict
from engine_overlay.cli.main import fail
from engine_overlay.cli.options import AsJson, OnlyEngine
from engine_overlay.cli.tables import say, show, show_json
from engine_overlay.log import one_line
from engine_overlay.record import Finding, Outcome

EXAMPLES = ("engine-overlay doctor", "engine-overlay doctor --json > doctor.json")
EXITS = {
    0: "every patch that goes in is proven",
    1: "one is not, or is refused",
    2: "no engine here, or the call was not understood",
}

_MARK = "engine-overlay-doctor:"


class Side(str, Enum):
    """Whether a process of the doctor has the overlay in it."""

    off = "off"
    on = "on"


def command(
    engine: OnlyEngine = None,
    json: AsJson = False,
    probe: Annotated[Side | None, typer.Option(hidden=True)] = None,
) -> int:
    """Prove each patch on the engine that is installed here.

    The smallest reproduction of each fault is run on the engine's real classes, on the CPU: in a process without
    the overlay, in one with it, and there again after the patch was taken out. A patch is proven when the fault is
    present, absent, and present again.

    JSON: a list of objects with engine, id, verdict, reason, without, with, after_undo (each outcome and evidence;
    after_undo may be null) and judgement.
    """
    if probe:
        print(_MARK + dumps(probe_all(engine.value, overlay=probe is Side.on)))
        return 0
    found = [e for e in engines.installed() if engine is None or e.name == engine.value]
    if not found:
        return fail("doctor", "no engine is installed here", "install vllm or aphrodite-engine first")
    known = catalog.load()
    wanted = settings.read()
    data, wrong = [], False
    for here in found:
        verdicts = verdict.decide(known, here, wanted)
        off = _in_process(here.name, "off")
        on = _in_process(here.name, "on")
        for i, v in verdicts.items():
            row = {"engine": here.label, "id": i, "verdict": v.code, "reason": v.reason}
            row["without"] = off.get(i, {}).get("on", _unknown("the process gave no answer"))
            row["with"] = on.get(i, {}).get("on", _unknown("the process gave no answer"))
            row["after_undo"] = on.get(i, {}).get("after_undo")
            row["judgement"] = judge(v, row["without"][0], row["with"][0], (row["after_undo"] or [None])[0])
            wrong |= row["judgement"].startswith("NOT") or v.refused
            data.append(row)
    if json:
        show_json(data)
    else:
        _text(data)
    return 1 if wrong else 0


def _text(data: list[dict[str, Any]]) -> None:
    rows = []
    for row in data:
        after = (row["after_undo"] or ["-"])[0]
        rows.append([row["engine"], row["id"], row["without"][0], row["with"][0], after, row["judgement"]])
    outcomes = ["without", "with", "after undo"]
    show(rows, ["engine", "patch", *outcomes, "judgement"], words=[*outcomes, "judgement"])
    proven = sum(row["judgement"] == "proven" for row in data)
    unproven = sum(row["judgement"].startswith("NOT") for row in data)
    rest = len(data) - proven - unproven
    say(f"{proven} proven, {unproven} not as they should be, {rest} not needed here or left out")


def judge(v: verdict.Verdict, without: str, with_: str, after_undo: str | None) -> str:
    """What the three findings say of a patch with this verdict, in a few words."""
    if v.code != verdict.APPLY:
        if v.code == verdict.NATIVE and without == Outcome.PRESENT.value:
            return f"NOT native: the fault is here ({v.reason})"
        return f"{v.code}: {v.reason}"
    if (without, with_) == (Outcome.PRESENT.value, Outcome.ABSENT.value):
        return "proven" if after_undo == Outcome.PRESENT.value else "NOT undone"
    if without == Outcome.ABSENT.value:
        return "NOT needed here: the fault is absent without it"
    return "NOT proven"


def probe_all(engine_name: str, *, overlay: bool) -> dict[str, dict[str, list[str]]]:
    """Probe every patch in this process: {id: {"on": [outcome, evidence], "after_undo": [...]}}.

    Without the overlay "on" is the stock engine's answer and "after_undo" is missing.
    """
    if overlay:
        from engine_overlay import importer

        importer.install("api")
    engine = engines.locate(engine_name)
    known = catalog.load()
    answers: dict[str, dict[str, list[str]]] = {}
    for i, entry in known.entries.items():
        if engine_name in entry.patch.engines:
            answers[i] = {"on": probe(entry, engine)}
    if overlay:
        from engine_overlay import commit

        for i, answer in answers.items():
            try:
                state = commit.state(i)
                if state != "applied":
                    answer["on"] = _unknown(f"the patch is {state}: {answer['on'][1]}")
                    continue
                left = commit.undo(i)
            except KeyError:
                continue
            answer["after_undo"] = probe(known.entries[i], engine) if not left else _unknown("; ".join(left))
            # Those that require it went out with it.
            for other in answers:
                with contextlib.suppress(KeyError):
                    if commit.state(other) == "undone":
                        commit.redo(other)
        left = commit.undo_all()
        for i, answer in answers.items():
            if answer.get("after_undo", [None])[0] == Outcome.ABSENT.value and not left:
                # Alone it may be covered by another patch: what does the engine do without all of them?
                answer["after_undo"] = probe(known.entries[i], engine)
    return answers


def probe(entry: catalog.Entry, engine: engines.Engine) -> list[str]:
    """[outcome, evidence] of one probe; one that raises is UNKNOWN with the error as evidence."""
    try:
        finding = entry.probe(engine)
        if not isinstance(finding, Finding):
            return _unknown(f"probe() returned {type(finding).__name__}, not Finding")
        return [finding.outcome.value, finding.evidence]
    except Exception as error:
        return _unknown(one_line(error))


def _unknown(why: str) -> list[str]:
    return [Outcome.UNKNOWN.value, why]


def _in_process(engine_name: str, overlay: str) -> dict[str, dict[str, list[str]]]:
    env = dict(os.environ)
    if overlay == "off":
        env["ENGINE_OVERLAY"] = "off"
    command = [sys.executable, "-m", "engine_overlay.cli", "doctor", "--engine", engine_name, "--probe", overlay]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    for line in done.stdout.splitlines():
        if line.startswith(_MARK):
            return loads(line[len(_MARK) :])
    sys.stderr.write(done.stderr[-2000:])
    return {}
