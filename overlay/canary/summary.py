"""A run in numbers and sentences, as plain data: what the table, the report and ``--json`` are made of."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from packaging.version import InvalidVersion, Version

from engine_overlay.canary.asking import Server
from engine_overlay.canary.finding import KINDS, Found, Kind
from engine_overlay.canary.questions import CHECKS, TYPES
from engine_overlay.canary.runner import Asked, Run, percentile
from engine_overlay.record import Patch


def make(server: Server, run: Run, patches: Mapping[str, Patch]) -> dict[str, Any]:
    """The whole summary; every value is JSON. ``patches``: all known ones by id, for the advice."""
    findings = _findings(server, run.asked, patches)
    return {
        "url": server.shown,
        "model": server.model,
        "engine": f"{server.engine} {server.version}".strip(),
        "overlay": server.overlay,
        "requests": len(run.asked),
        "judged": run.judged,
        "faulty": run.found,
        "seconds": round(run.seconds, 1),
        "stopped": run.stopped,
        "checks": [_check(check, run.asked) for check in CHECKS if any(a.question.check == check for a in run.asked)],
        "types": _types(run.asked),
        "latency": _latency(run),
        "findings": findings,
    }


def _check(check: str, asked: Iterable[Asked]) -> dict[str, Any]:
    mine = [one for one in asked if one.question.check == check]
    reasons = Counter(one.unjudged for one in mine if one.unjudged)
    found = sum(bool(one.found) for one in mine)
    kinds = Counter(kind for one in mine for kind in dict.fromkeys(f.kind for f in one.found))
    if found:
        result = "FAULT"
    elif sum(reasons.values()) == len(mine):
        result = "not judged"
    else:
        result = "ok"
    firsts = [one.answer.first for one in mine if one.question.streamed and one.answer.first is not None]
    return {
        "check": check,
        "title": CHECKS[check],
        "requests": len(mine),
        "faulty": found,
        "unjudged": sum(reasons.values()),
        "reasons": dict(reasons.most_common()),
        "kinds": dict(kinds.most_common()),
        "result": result,
        "first_p50": percentile(firsts, 0.5),
    }


def _types(asked: Iterable[Asked]) -> list[dict[str, Any]]:
    mine = [one for one in asked if one.question.check == "types"]
    rows = []
    for kind in TYPES:
        row: dict[str, Any] = {"type": kind}
        for way in ("streaming", "full"):
            cell = [one for one in mine if one.question.name == kind and one.question.streamed == (way == "streaming")]
            row[way] = {
                "requests": len(cell),
                "faulty": sum(bool(one.found) for one in cell),
                "unjudged": sum(bool(one.unjudged) for one in cell),
            }
        rows.append(row)
    return rows if mine else []


def _latency(run: Run) -> list[dict[str, Any]]:
    rows = []
    for level, wall in run.wall.items():
        answers = [one.answer for one in run.asked if one.level == level and one.answer.status == 200]
        firsts = [answer.first for answer in answers if answer.first is not None]
        gaps = [gap for answer in answers for gap in answer.gaps]
        counts = [answer.tokens for answer in answers]
        known = [count for count in counts if count is not None]
        rows.append(
            {
                "at_once": level,
                "requests": len(answers),
                "first_p50": percentile(firsts, 0.5),
                "first_p95": percentile(firsts, 0.95),
                "gap_p50": percentile(gaps, 0.5),
                "gap_p99": percentile(gaps, 0.99),
                "answer_p50": percentile([answer.seconds for answer in answers], 0.5),
                "tokens_per_second": sum(known) / wall if known and len(known) == len(counts) and wall else None,
                "firsts": firsts,
            }
        )
    return rows


def _findings(server: Server, asked: Sequence[Asked], patches: Mapping[str, Patch]) -> list[dict[str, Any]]:
    """One entry for each kind and way, the one seen most first; its evidence is the first that came."""
    groups: dict[tuple[str, bool], list[tuple[Asked, Found]]] = {}
    for one in asked:
        for kind, found in {found.kind: found for found in reversed(one.found)}.items():
            groups.setdefault((kind, one.question.streamed), []).append((one, found))
    rows = []
    for (kind, streamed), members in groups.items():
        first, found = members[0]
        times = Counter(one.question.check for one, _ in members)
        events = first.answer.raw(found.field, found.start, found.end) if found.field else found.events
        ways = Counter(one.question.check for one in asked if one.question.streamed == streamed)
        rows.append(
            {
                "kind": kind,
                "title": KINDS[kind].title,
                "streamed": streamed,
                "times": len(members),
                "checks": {check: {"times": times[check], "of": ways[check]} for check in CHECKS if times[check]},
                "questions": list(dict.fromkeys(one.question.name for one, _ in members)),
                "said": found.said,
                "piece": found.piece,
                "field": found.field,
                "events": events[:2000],
                "asked": str(first.question.messages[-1].get("content", ""))[:300],
                "why": KINDS[kind].why,
                "step": _step(server, KINDS[kind], patches),
            }
        )
    return sorted(rows, key=lambda row: -row["times"])


def _step(server: Server, kind: Kind, patches: Mapping[str, Patch]) -> str:
    """What to do next, with the patches that fit the server's release where it tells its release."""
    steps = [kind.step] if kind.step else []
    fits = [name for name in kind.patches if name in patches and _fits(patches[name], server)]
    if kind.patches and server.overlay:
        steps.append('engine-overlay is in this server: run "engine-overlay status" and "engine-overlay doctor" there')
    elif fits:
        named = f"patch{'es' if len(fits) > 1 else ''} {', '.join(fits)}"
        steps.append(f'install engine-overlay beside the engine ({named}; "engine-overlay explain {fits[0]}")')
    return "; ".join(steps) or "compare with a later release of the engine"


def _fits(patch: Patch, server: Server) -> bool:
    if not server.engine or not server.version:
        return True
    closed = patch.engines.get(server.engine)
    try:
        version = Version(Version(server.version).base_version)
        return closed is not None and Version(closed.first) <= version <= Version(closed.last)
    except InvalidVersion:
        return True
