"""Are the markers that the configured parsers look for tokens of their own in this model's tokenizer?"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from engine_overlay import verdict
from engine_overlay.doctor.child import Answers
from engine_overlay.doctor.finding import Finding
from engine_overlay.doctor.flags import Flags
from engine_overlay.doctor.model import Model
from engine_overlay.text.formats import CALLS, REASONING, STOCK_CALLS, STOCK_REASONING, UNIFIED

SUBJECT = "tokenizer"

SPELLED = ("spelled_markers", "reasoning_handoff", "reasoning_handoff_inline", "own_parser")
"""The patches that let a marker count which is spelled in ordinary tokens."""

Verdicts = Mapping[str, verdict.Verdict]


def check(model: Model, flags: Flags, answers: Answers, verdicts: Verdicts, *, overlay: bool) -> list[Finding]:
    """Findings about the markers of the two parsers; ``verdicts`` say what the overlay does here."""
    mends = [i for i in SPELLED if overlay and i in verdicts and verdicts[i].code == verdict.APPLY]
    findings: list[Finding] = []
    looked = 0
    for kind, name in (("reasoning", flags.reasoning_parser), ("tools", flags.tool_call_parser)):
        if name is None:
            continue
        error = answers.errors.get(kind)
        # An unknown name is said of the flags, a missing tokenizer below.
        if error and not error.startswith(("KeyError", "LookupError")):
            findings.append(_unmade(kind, name, error))
            continue
        found = answers.get(kind) or _from_files(model, kind, name)
        if found is None:
            continue
        for marker in found["markers"]:
            looked += 1
            findings += _marker(kind, name, marker, mends)
        findings += _special(kind, name, found)
    if error := answers.errors.get("tokenizer"):
        text = "the engine cannot load the model's tokenizer; its files were read instead"
        findings.append(Finding(SUBJECT, "note" if model.tokens else "problem", text, error))
    if looked and not findings:
        findings.append(Finding(SUBJECT, "ok", f"all {looked} markers of the parsers are single tokens"))
    return findings


def _unmade(kind: str, name: str, error: str) -> Finding:
    flag = "--reasoning-parser" if kind == "reasoning" else "--tool-call-parser"
    return Finding(
        SUBJECT,
        "problem",
        f"{flag} {name} cannot be made for this model's tokenizer",
        f"requests that need it fail: {error}",
        f"take another {flag}; what fits the model is said under parsers",
    )


def _marker(kind: str, name: str, marker: Mapping[str, Any], mends: list[str]) -> list[Finding]:
    pieces = marker["pieces"]
    if len(pieces) < 2:
        return []
    shown = " ".join(repr(piece) for piece in pieces[:6]) + (" ..." if len(pieces) > 6 else "")
    what = f"{marker['text']} of {name} is no token of this tokenizer, it breaks up into {len(pieces)}: {shown}"
    start = kind == "reasoning" and marker.get("role") == "start"
    if mends or start:
        why = "the model can only spell it"
        why += f"; the overlay reads it from the text ({', '.join(mends)})" if mends else ""
        return [Finding(SUBJECT, "note", what, why)]
    lost = "the answer stays in the reasoning" if kind == "reasoning" else "calls come as text"
    return [
        Finding(
            SUBJECT,
            "problem",
            what,
            f"the model can only spell it, and an engine that looks for the token does not see it: {lost}",
            "unset ENGINE_OVERLAY ENGINE_OVERLAY_DISABLE ENGINE_OVERLAY_ONLY",
        )
    ]


def _special(kind: str, name: str, found: Mapping[str, Any]) -> list[Finding]:
    """Markers that the engine takes out of the text before the parser sees it."""
    special = [m["text"] for m in found["markers"] if m.get("special")]
    if not special:
        return []
    told = f"{' and '.join(special)} of {name} {'is' if len(special) == 1 else 'are'} marked as special"
    fix = 'send "skip_special_tokens": false with each request'
    if kind == "tools":
        if found.get("kept") is not False or found.get("by_id"):
            return []
        why = "the engine takes them out of the text, and the parser needs them"
        return [Finding(SUBJECT, "problem", told, why, fix)]
    whole = found.get("whole")
    if isinstance(whole, list) and (whole[1] or "").strip() == "two":
        return []
    if not isinstance(whole, list):
        return []
    why = "the engine takes it out of a whole answer, so "
    why += f"of 'one{special[-1]}two' the parser makes reasoning {whole[0]!r} and content {whole[1]!r}"
    return [Finding(SUBJECT, "problem", told, why, fix)]


def _from_files(model: Model, kind: str, name: str) -> dict[str, Any] | None:
    """The same from the tokenizer's files, for parsers whose markers the overlay knows; None when it cannot be told."""
    stock = STOCK_REASONING if kind == "reasoning" else STOCK_CALLS
    half = UNIFIED[name][0 if kind == "reasoning" else 1] if name in UNIFIED else stock.get(name)
    if half is None or not model.tokens:
        return None
    if kind == "reasoning":
        texts = [("start", REASONING[half].start), ("end", REASONING[half].end)]
    else:
        texts = [("", text) for text in CALLS[half].tokens]
    markers = []
    for role, text in texts:
        single = text in model.tokens or text in model.vocabulary
        pieces = [text] if single else list(text)
        markers.append(
            {"text": text, "role": role, "ids": pieces, "pieces": pieces, "special": model.tokens.get(text, False)}
        )
    return {"markers": markers, "whole": None, "kept": None, "by_id": False}
