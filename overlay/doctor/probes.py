"""Each patch's probe in a process without the overlay, in one with it, and there again after undo."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Mapping
from typing import Any

from engine_overlay import catalog, engines, settings, verdict
from engine_overlay.doctor import child
from engine_overlay.log import one_line
from engine_overlay.record import Finding, Outcome

Rows = list[dict[str, Any]]


def prove(engine: engines.Engine, *, environ: Mapping[str, str], seconds: float) -> tuple[Rows, list[str]]:
    """A row for each patch, as ``engine-overlay doctor --json`` shows it, and a line for each process that failed."""
    verdicts = verdict.decide(catalog.load(), engine, settings.read(environ))
    sides, failed = {}, []
    for side, overlay in (("without", False), ("with", True)):
        answers = child.ask(engine.name, ["probes"], {}, overlay=overlay, environ=environ, seconds=seconds)
        sides[side] = answers.get("probes") or {}
        if not sides[side]:
            why = answers.ended or answers.errors.get("probes") or answers.errors.get("import")
            failed.append(f"the process {side} the overlay gave no answer: {why}")
    rows = []
    for i, v in verdicts.items():
        row: dict[str, Any] = {"engine": engine.label, "id": i, "verdict": v.code, "reason": v.reason}
        for side, probed in sides.items():
            row[side] = probed.get(i, {}).get("on", _unknown("the process gave no answer"))
        row["after_undo"] = sides["with"].get(i, {}).get("after_undo")
        row["judgement"] = judge(v, row["without"][0], row["with"][0], (row["after_undo"] or [None])[0])
        rows.append(row)
    return rows, failed


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
    if overlay:
        _import_targets(engine)
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


def _import_targets(engine: engines.Engine) -> None:
    """Import what the patches replace: one goes in when all its modules are there, and no probe needs all of them."""
    from engine_overlay import importer

    with contextlib.suppress(Exception):
        engine.module("")
    ledger = importer.overlay.ledgers.get(engine.name) if importer.overlay else None
    for name in sorted(ledger.wanted_modules()) if ledger else ():
        try:
            engine.module(name.partition(".")[2])
        except Exception as error:
            # The patch stays staged, and its probe says so.
            print(f"{name} cannot be imported: {one_line(error)}", file=sys.stderr)


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
