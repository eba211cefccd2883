"""What the result of a release says: the cell of each patch, and which cases turned right or wrong."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from engine_overlay.text.formats import STOCK_CALLS, STOCK_REASONING
from engine_overlay.verify import cases as public

FIXED, NATIVE, NOT_AFFECTED, REFUSED = "fixed", "native", "not affected", "refused"
DISABLED, UNPROVEN = "off by default", "unproven"
GOOD = frozenset({FIXED, NATIVE, NOT_AFFECTED, DISABLED})

_REFUSALS = frozenset({"untested", "drifted", "missing", "conflict", "failed"})


@dataclass(frozen=True)
class Cell:
    """One word for a patch on a release, what decided it, and what the probe saw at each step."""

    word: str
    reason: str
    evidence: tuple[tuple[str, str], ...] = ()

    def __str__(self) -> str:
        return "; ".join(
            [f"{self.word}: {self.reason}", *(f"{step}: {text}" for step, text in self.evidence)]
        )


def cell(result: dict[str, Any], patch_id: str) -> Cell:
    """The cell of a patch: *fixed* only when the fault was seen without, not with, and again after undo."""
    patch, off = result["on"]["patches"][patch_id], result["off"]["probes"][patch_id]
    verdict, reason = patch["verdict"], patch["reason"]
    if verdict in _REFUSALS:
        return Cell(REFUSED, f"{verdict}: {reason}")
    if verdict == "disabled":
        return Cell(DISABLED, reason)
    if verdict == "native":
        word = NOT_AFFECTED if patch["detail"] == "not affected" else NATIVE
        word = word if off["outcome"] == "ABSENT" else UNPROVEN
        return Cell(word, reason, ((f"off {off['outcome']}", off["evidence"]),))
    steps = {"off": off, **{step: patch.get(step, _NOT_RUN) for step in _FIXED if step != "off"}}
    seen = {step: finding["outcome"] for step, finding in steps.items()}
    shown = tuple((f"{step} {found['outcome']}", found["evidence"]) for step, found in steps.items())
    alone = seen.pop("undone")
    proven = seen == {step: outcome for step, outcome in _FIXED.items() if step != "undone"}
    if proven and alone in ("PRESENT", "ABSENT") and patch["state"] == "applied" and not patch["left"]:
        # The other findings say what the first two say.
        covered = "" if alone == "PRESENT" else " of all patches (alone, another patch covers what the probe does)"
        return Cell(FIXED, f"PRESENT off, ABSENT on, PRESENT after undo{covered}", shown[:2])
    return Cell(UNPROVEN, f"{patch['state']} {patch['state_reason']}".strip(), shown)


_FIXED = {
    "off": "PRESENT",
    "on": "ABSENT",
    "undone": "PRESENT",
    "redone": "ABSENT",
    "all_undone": "PRESENT",
}
_NOT_RUN = {"outcome": "NOT RUN", "evidence": "the patch is not applied"}


def right(result: dict[str, Any], side: str, mode: str) -> int:
    """Number of cases whose answer is right, in every chunking when ``mode`` is ``stream``."""
    return sum(answer[mode] for answer in result[side]["cases"].values())


def worse(result: dict[str, Any]) -> list[str]:
    """Every (case, way to cut it) that is right off and wrong on, as a line that shows what came."""
    lines = []
    for case_id, on in result["on"]["cases"].items():
        off = result["off"]["cases"][case_id]
        for way, difference in on["wrong"].items():
            if way not in off["wrong"]:
                lines.append(f"{case_id} {way}: {difference}")
    return lines


_NOT_THERE = "not been registered"
"""What the engines say of a parser that they do not have."""


def spelled_wrong(result: dict[str, Any], side: str = "on") -> list[str]:
    """Every case about spelled markers that is wrong on this side, in any way to cut it."""
    lines = []
    for case_id, kind in public.kinds(public.load()):
        wrong = result[side]["cases"][case_id]["wrong"]
        if public.is_spelled(kind):
            lines += [f"{case_id} {way}: {difference}" for way, difference in wrong.items()]
    return lines


def own_wrong(result: dict[str, Any], side: str = "on") -> list[str]:
    """Every case of a format that the own parser reads which is wrong on this side, in any way to cut it.

    A release that does not have the case's parsers is not asked.
    """
    lines = []
    for case in public.load():
        reasoning, tools = case["reasoning_parser"], case["tool_parser"]
        if reasoning in (None, *STOCK_REASONING) and tools in (None, *STOCK_CALLS) and (reasoning or tools):
            for way, difference in result[side]["cases"][case["id"]]["wrong"].items():
                if _NOT_THERE not in difference.get("raised", ""):
                    lines.append(f"{case['id']} {way}: {difference}")
    return lines


def end_missed(result: dict[str, Any], side: str = "on") -> list[str]:
    """Cases whose spelled end of reasoning is not seen on this side, in any way to cut it.

    For releases without a parser engine: what their tool parsers make of a spelled call behind it is not asked.
    A release that does not have the case's parsers is not asked either.
    """
    lines = []
    for case in public.load():
        if public.is_spelled(case["kind"]) and case["reasoning_parser"] and "</think>" in case["text"]:
            for way, difference in result[side]["cases"][case["id"]]["wrong"].items():
                raised = difference.get("raised", "")
                if "reasoning" in difference or raised and _NOT_THERE not in raised:
                    lines.append(f"{case['id']} {way}: {difference}")
    return lines


def undo_incomplete(result: dict[str, Any]) -> list[str]:
    """Cases that answer differently after everything was undone than in the process that was never
    patched.
    """
    undone = result["on"]["undone"]
    changed = [i for i, answer in undone["cases"].items() if answer != result["off"]["cases"][i]]
    return undone["left"] + [f"{i} answers differently after undo" for i in changed]


def off_unclean(result: dict[str, Any]) -> list[str]:
    """What of the overlay was found in the process with ENGINE_OVERLAY=off."""
    off = result["off"]
    return [f"module {name}" for name in off["loaded"]] + [f"finder {name}" for name in off["finders"]]
