"""The flags of the server: does the engine read them, does it have the parsers that they name, do they fit together?"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from engine_overlay import settings
from engine_overlay.doctor.child import Answers
from engine_overlay.doctor.finding import Finding
from engine_overlay.doctor.launch import Launch

SUBJECT = "flags"


@dataclass(frozen=True, slots=True)
class Flags:
    """What the flags say. ``by`` tells who read them: the engine's own parser, or the doctor."""

    reasoning_parser: str | None = None
    tool_call_parser: str | None = None
    auto_tool_choice: bool = False
    by: str = "the doctor"
    values: Mapping[str, Any] = field(default_factory=dict)


def read(launch: Launch, answers: Answers | None) -> Flags:
    """The flags as the engine reads them, else the doctor's own reading."""
    values = ((answers.get("arguments") if answers else None) or {}).get("values")
    if values is not None:
        return Flags(
            values.get("reasoning_parser") or None,
            values.get("tool_call_parser") or None,
            bool(values.get("enable_auto_tool_choice")),
            "the engine",
            values,
        )
    names = ("tokenizer", "tokenizer-mode", "chat-template", "reasoning-config", "speculative-config")
    values = {name.replace("-", "_"): launch.flag(name) for name in names}
    values["trust_remote_code"] = launch.flag("trust-remote-code") is not None
    reasoning, tools = launch.flag("reasoning-parser"), launch.flag("tool-call-parser")
    return Flags(reasoning or None, tools or None, launch.flag("enable-auto-tool-choice") is not None, values=values)


def check(launch: Launch, flags: Flags, answers: Answers | None) -> list[Finding]:
    """Findings about the command line alone; no model is needed for them."""
    findings = _reading(launch, answers)
    names = (answers.get("names") if answers else None) or {}
    for kind, flag, name in (
        ("reasoning", "--reasoning-parser", flags.reasoning_parser),
        ("tools", "--tool-call-parser", flags.tool_call_parser),
    ):
        known = names.get(kind)
        if name is None or not known:
            continue
        if name not in known:
            guess = settings.nearest(name, known)
            findings.append(
                Finding(
                    SUBJECT,
                    "problem",
                    f"{flag} {name}: this release has no such parser" + (f", did you mean {guess}?" if guess else ""),
                    f"it has {', '.join(known)}",
                    f"{flag} {guess}" if guess else f"take {flag} out, or load the parser's file with {_plugin(kind)}",
                )
            )
    if flags.auto_tool_choice and not flags.tool_call_parser:
        findings.append(
            Finding(
                SUBJECT,
                "problem",
                "--enable-auto-tool-choice without --tool-call-parser",
                "the server refuses to start so",
                "--tool-call-parser NAME (see what is said of the model's parsers)",
            )
        )
    elif flags.tool_call_parser and not flags.auto_tool_choice:
        findings.append(
            Finding(
                SUBJECT,
                "problem",
                f"--tool-call-parser {flags.tool_call_parser} without --enable-auto-tool-choice",
                "requests with tools and tool_choice auto, the default, are refused (400)",
                "--enable-auto-tool-choice",
            )
        )
    if not any(f.level == "problem" for f in findings):
        named = f"reasoning parser {flags.reasoning_parser or 'none'}, tool parser {flags.tool_call_parser or 'none'}"
        findings.append(Finding(SUBJECT, "ok", f"{launch.source}, read by {flags.by}: {named}"))
    return findings


def _reading(launch: Launch, answers: Answers | None) -> list[Finding]:
    """What the engine's own parser says of the command line."""
    found = answers.get("arguments") if answers else None
    if found is None:
        if answers is None:
            return []
        why = answers.errors.get("arguments") or answers.errors.get("import") or answers.ended or "it was not asked"
        what = "the engine's own parser could not read the flags, the doctor read them itself"
        return [Finding(SUBJECT, "note", what, why)]
    if found["error"]:
        return [_refused(found["error"], found["options"])]
    # That the tool parser is missing is said with what to do about it.
    if found.get("refused") and "requires --tool-call-parser" not in found["refused"]:
        return [Finding(SUBJECT, "problem", "the server refuses these flags", found["refused"], "mend what it names")]
    return []


def _refused(error: str, options: list[str]) -> Finding:
    unknown = re.search(r"unrecognized arguments: (.*)", error)
    if unknown is None:
        return Finding(SUBJECT, "problem", "the engine cannot read these flags", error, "mend what it names")
    words = [word.partition("=")[0] for word in unknown[1].split() if word.startswith("-")] or [unknown[1]]
    near = {word: settings.nearest(word.replace("_", "-"), options) for word in words}
    guesses = [f"{word}, did you mean {guess}?" if guess else word for word, guess in near.items()]
    step = "; ".join(f"write {guess} for {word}" if guess else f"take {word} out" for word, guess in near.items())
    what = f"this release has no flag {' '.join(guesses)}"
    return Finding(SUBJECT, "problem", what, "the server does not start", step)


def _plugin(kind: str) -> str:
    return "--reasoning-parser-plugin FILE" if kind == "reasoning" else "--tool-parser-plugin FILE"
