"""Do the configured parsers read what this model writes?

How it writes calls is told by its own chat template: the engine renders a call with it and every tool parser of the
release is given that text. What makers recommend decides among those that read it. Where nothing can be rendered the
markup in the template's source is compared with a table, and last the model's name.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from engine_overlay.doctor.child import Answers
from engine_overlay.doctor.finding import Finding
from engine_overlay.doctor.flags import Flags
from engine_overlay.doctor.model import Model
from engine_overlay.text.formats import UNIFIED

SUBJECT = "parsers"
THINK = ("<think>", "</think>")
OPENERS = (THINK[0], "<seed:think>", "[THINK]", "<|channel>thought")
"""What begins reasoning in a template; gpt-oss is not among them, as engines choose its parser themselves."""


@dataclass(frozen=True, slots=True)
class Family:
    """What the makers of a family of models recommend: names of parsers, the first one first.

    No names means that a model of this family needs none; ``optional`` names kinds that only some of them need.
    ``tokenizer_mode`` is what the recommendation goes with, and ``source`` where it is written.
    """

    family: str
    tools: tuple[str, ...]
    reasoning: tuple[str, ...]
    source: str
    optional: tuple[str, ...] = ()
    tokenizer_mode: str | None = None


@cache
def _data() -> dict[str, Any]:
    return json.loads(Path(__file__).with_name("recommended.json").read_text(encoding="utf-8"))


def family_of(model: Model) -> Family | None:
    """The family of a model: by its name, else by ``model_type`` of its config; None when it is not in the table."""
    names = (model.name, str(model.config.get("_name_or_path") or ""))
    for entry in _data()["families"]:
        pattern = entry.get("name")
        if pattern and any(re.search(pattern, name, re.IGNORECASE) for name in names):
            return _family(entry)
    for entry in _data()["families"]:
        if model.model_type and model.model_type in entry.get("model_type", ()):
            return _family(entry)
    return None


def _family(entry: Mapping[str, Any]) -> Family:
    tools, reasoning, optional = (tuple(entry.get(key, ())) for key in ("tools", "reasoning", "optional"))
    return Family(entry["family"], tools, reasoning, entry["source"], optional, entry.get("tokenizer_mode"))


def markup_of(template: str) -> tuple[str, tuple[str, ...]] | None:
    """(the markup of calls in this text, the tool parsers that read it), or None when it is not in the table."""
    for entry in _data()["markup"]:
        if all(sign in template for sign in entry["signs"]):
            return entry["written"], tuple(entry["tools"])
    return None


def check(model: Model, flags: Flags, answers: Answers, names: Mapping[str, Sequence[str]]) -> list[Finding]:
    """Findings about both parsers; ``names`` are those that the installed release has, by kind."""
    family = _fitting(family_of(model), model, answers)
    findings = [*_tools(model, flags, answers, names, family), *_reasoning(model, flags, answers, names, family)]
    mode = family.tokenizer_mode if family else None
    chosen = flags.values.get("tokenizer_mode") or "auto"
    if mode and model.template is None and chosen not in (mode, "slow") and (mode != "mistral" or chosen == "hf"):
        what = f"{family.family} has no chat template, and --tokenizer-mode is {chosen}"
        findings.append(Finding(SUBJECT, "problem", what, f"see {family.source}", f"--tokenizer-mode {mode}"))
    return findings


def _fitting(family: Family | None, model: Model, answers: Answers) -> Family | None:
    """The family, unless the model's own template writes calls as none of its parsers reads them: a name says less."""
    readers = answers.get("readers") or {}
    reading = [name for name, what in readers.items() if what == "reads"]
    if not reading and model.template and (written := markup_of(model.template)):
        reading = list(written[1])
    asked = [name for name in (family.tools if family else ()) if not _undecided(readers.get(name, ""))]
    return None if reading and asked and not set(asked) & set(reading) else family


def _tools(
    model: Model, flags: Flags, answers: Answers, names: Mapping[str, Sequence[str]], family: Family | None
) -> list[Finding]:
    readers = answers.get("readers") or {}
    call = (answers.get("template") or {}).get("call")
    reading = [name for name, what in readers.items() if what == "reads"]
    chosen = flags.tool_call_parser
    known = names.get("tools") or ()
    if reading:
        best, why = _best(reading, family, call)
        written = f"its chat template writes a call as {_short(call)}"
        if chosen is None:
            return _no_parser("tools", f"{written}, and no tool parser is configured", best, why)
        if chosen in reading:
            ok = f"{chosen} reads the calls that the model's chat template writes"
            return [Finding(SUBJECT, "ok", ok, why if chosen in (family.tools if family else ()) else "")]
        if chosen not in readers or _undecided(readers[chosen]):
            return _by_name("tools", chosen, family, known)
        got = readers[chosen]
        return [
            Finding(
                SUBJECT,
                "problem",
                f"--tool-call-parser {chosen} does not read this model's calls",
                f"{written}, of which it makes {got}; this release reads it with {', '.join(reading)}. {why}".strip(),
                f"--tool-call-parser {best}",
            )
        ]
    if call and readers:
        asked = [name for name, what in readers.items() if not _undecided(what)]
        if chosen in asked:
            return [
                Finding(
                    SUBJECT,
                    "problem",
                    f"no tool parser of this release reads this model's calls, {chosen} neither",
                    f"its chat template writes a call as {_short(call)}",
                    _load_a_parser(family),
                )
            ]
    written = markup_of(model.template) if model.template else None
    if written is not None:
        fitting = [name for name in written[1] if not known or name in known]
        if chosen is None and fitting:
            best, why = _best(fitting, family)
            return _no_parser("tools", f"its chat template writes calls as {written[0]}", best, why)
        if chosen is not None and chosen not in written[1] and _half(chosen, 1) not in written[1] and fitting:
            best, why = _best(fitting, family)
            what = f"--tool-call-parser {chosen} is not for calls that are written as {written[0]}"
            said = f"so the model's chat template has them. {why}".strip()
            return [Finding(SUBJECT, "problem", what, said, f"--tool-call-parser {best}")]
        return [] if chosen is None else [Finding(SUBJECT, "ok", f"{chosen} fits calls written as {written[0]}")]
    return _by_name("tools", chosen, family, known)


def _undecided(said: str) -> bool:
    """Whether a parser cannot be asked for a whole text: it needs tokens, or is made of another part of the engine."""
    return said.startswith("NotImplementedError")


def _reasoning(
    model: Model, flags: Flags, answers: Answers, names: Mapping[str, Sequence[str]], family: Family | None
) -> list[Finding]:
    known = names.get("reasoning") or ()
    chosen = flags.reasoning_parser
    prompt = (answers.get("template") or {}).get("prompt") or ""
    thinks = model.template is not None and THINK[0] in model.template
    wanted = [name for name in (family.reasoning if family else ()) if not known or name in known]
    if chosen is None:
        if family is not None and not family.reasoning or not (thinks or wanted):
            return []
        others = model.template is not None and any(opener in model.template for opener in OPENERS)
        if not others and (model.template is not None or family is None or "reasoning" in family.optional):
            return []
        opened = prompt.rstrip().endswith(THINK[0])
        what = "the prompt opens <think>" if opened else "the chat template has <think>"
        if not thinks:
            what = f"{family.family} answers with reasoning"
        best, why = _best(wanted or [n for n in ("qwen3", "deepseek_r1") if not known or n in known], family)
        return _no_parser("reasoning", f"{what}, and no reasoning parser is configured", best, why)
    end = (answers.get("reasoning") or {}).get("end")
    text = (model.template or "") + prompt
    if end and thinks and end not in text and THINK[1] in text:
        best, why = _best(wanted or [n for n in ("qwen3", "deepseek_r1") if not known or n in known], family)
        return [
            Finding(
                SUBJECT,
                "problem",
                f"--reasoning-parser {chosen} looks for {end}, and this model ends its reasoning with </think>",
                f"so its chat template has it. {why}".strip(),
                f"--reasoning-parser {best}",
            )
        ]
    return _by_name("reasoning", chosen, family, known)


def _by_name(kind: str, chosen: str | None, family: Family | None, known: Sequence[str]) -> list[Finding]:
    """What only the family of the model says."""
    if family is None or chosen is None:
        return []
    flag = "--reasoning-parser" if kind == "reasoning" else "--tool-call-parser"
    wanted = family.reasoning if kind == "reasoning" else family.tools
    if chosen in wanted or _half(chosen, 0 if kind == "reasoning" else 1) in wanted:
        return [Finding(SUBJECT, "ok", f"{chosen} is what is recommended for {family.family}", family.source)]
    here = [name for name in wanted if name in known]
    if here:
        what = f"{flag} {chosen}: for {family.family} {' or '.join(wanted)} is recommended"
        return [Finding(SUBJECT, "note", what, family.source, f"{flag} {here[0]}")]
    if wanted:
        what = f"this release has none of the parsers recommended for {family.family}: {', '.join(wanted)}"
        return [Finding(SUBJECT, "note", what, family.source)]
    return []


def _half(name: str, index: int) -> str | None:
    """The stock parser that a name of the overlay's own parsers stands for."""
    from engine_overlay.serving.names import stock_names

    return stock_names(name)[index] if name in UNIFIED else None


def _best(fitting: Sequence[str], family: Family | None, call: str | None = None) -> tuple[str, str]:
    """(the one to recommend among those that fit, why): the makers' own, else the one made for this markup."""
    for name in (*(family.tools if family else ()), *(family.reasoning if family else ())):
        if name in fitting:
            return name, f"{name} is recommended for {family.family} ({family.source})"
    written = markup_of(call) if call else None
    for name in written[1] if written else ():
        if name in fitting:
            return name, ""
    return next((name for name in fitting if name not in UNIFIED), [*fitting, "NAME"][0]), ""


def _no_parser(kind: str, what: str, best: str, why: str) -> list[Finding]:
    if kind == "tools":
        step = f"--enable-auto-tool-choice --tool-call-parser {best}"
        return [Finding(SUBJECT, "note", what, f"calls come back as text. {why}".strip(), step)]
    said = f"reasoning comes back as part of the answer. {why}".strip()
    return [Finding(SUBJECT, "problem", what, said, f"--reasoning-parser {best}")]


def _load_a_parser(family: Family | None) -> str:
    see = f"see {family.source}" if family else "see the model's card"
    return f"{see}; a parser of its own is loaded with --tool-parser-plugin FILE"


def _short(text: str | None) -> str:
    whole = repr(text or "")
    return whole if len(whole) <= 90 else whole[:86] + " ..."
