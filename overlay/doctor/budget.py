"""Would a request with ``thinking_token_budget`` be refused? The engine's own check says so, where it can be asked."""

from __future__ import annotations

from engine_overlay.doctor.child import Answers
from engine_overlay.doctor.finding import Finding
from engine_overlay.doctor.flags import Flags
from engine_overlay.engines import Engine

SUBJECT = "budget"


def check(engine: Engine, flags: Flags, answers: Answers) -> list[Finding]:
    """One finding about a request with a thinking budget, and one about a config of the user's that is not whole."""
    found = answers.get("budget")
    if found is not None and not found["known"]:
        what = f"{engine.label} has no thinking_token_budget; the engine ignores it in a request"
        return [Finding(SUBJECT, "note", what, "", "engine-overlay proxy --help (a budget in front of the server)")]
    if found is not None and found["refused"] is None:
        made = (answers.get("config") or {}).get("reasoning_config") or {}
        parts = (made.get("reasoning_start_str"), made.get("reasoning_end_str"))
        # Without strings of the user's, releases keep the tokens they found only.
        texts = parts if all(parts) else _strings(answers)
        how = f"it counts from {texts[0]} and ends with {texts[1]}" if all(texts) else ""
        return [Finding(SUBJECT, "ok", "a request with thinking_token_budget is served", how)]
    if found is not None:
        return [_refused(flags, answers, found["refused"])]
    why = answers.errors.get("budget") or answers.ended or "the engine was not asked"
    # Without the finished config the strings of the parser decide, as they would there.
    start, end = _strings(answers)
    if answers.errors.get("config"):
        why = f"its config cannot be made here: {answers.errors['config']}"
    if flags.reasoning_parser and answers.get("reasoning") is not None and not (start and end):
        return [_refused(flags, answers, "its reasoning parser has no texts for start and end")]
    if not flags.reasoning_parser and not flags.values.get("reasoning_config"):
        return [_refused(flags, answers, "there is neither a reasoning parser nor a reasoning config")]
    return [Finding(SUBJECT, "note", "whether a thinking budget is served could not be asked of the engine", why)]


def _strings(answers: Answers) -> tuple[str | None, str | None]:
    found = answers.get("reasoning") or {}
    return found.get("start"), found.get("end")


def _refused(flags: Flags, answers: Answers, why: str) -> Finding:
    what = "a request with thinking_token_budget is refused (400)"
    if not flags.reasoning_parser and not flags.values.get("reasoning_config"):
        # Most servers want no budget; that it needs a parser is worth to know only.
        return Finding(SUBJECT, "note", what, why, "--reasoning-parser NAME (see parsers)")
    start, end = _strings(answers)
    texts = f'{{"reasoning_start_str": "{start or "<think>"}", "reasoning_end_str": "{end or "</think>"}"}}'
    return Finding(SUBJECT, "problem", what, why, f"--reasoning-config '{texts}'")
