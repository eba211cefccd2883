"""The prompts of a parity run: built in, or from a file."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

# Long, and the same for all prompts: without a shared prefix of several blocks a prefix cache has nothing to reuse.
PREAMBLE = (
    "You help people who work in a small repair shop for household machines. Answer in plain words, say first "
    "what to check, then what to do, and name the tool for each step. Never guess a part number. If a step is "
    "dangerous, say so before the step and not after it. Mains voltage, gas and springs under tension are "
    "dangerous; so is hot water under pressure. The people you help know how to use a multimeter, a torque wrench "
    "and a soldering iron, and they have the service sheets of most makers at hand. Keep numbers in SI units, "
    "with one digit more than the reading allows at most. When two causes are equally likely, name the one that "
    "is cheaper to exclude. When nothing is wrong, say that nothing is wrong. Do not apologise and do not repeat "
    "the question. An answer has no more than twelve lines, and the last line says how the repair is tested "
    "before the machine goes back to its owner.\n\n"
)
QUESTIONS = (
    "A washing machine stops with water in the drum and hums. What is it?",
    "The oven gets warm but never hot. Both elements read 52 ohms. Where do I look?",
    "How do I find a leak in a dishwasher that only leaks every third run?",
    "A fridge runs all day, and the back wall has ice the thickness of a finger.",
    "The dryer squeaks for a minute after it starts and then is quiet.",
    "Compute the current of a 2.2 kW kettle at 230 V, and the resistance of its element.",
    "A coffee machine pumps, but only drops come out. It was descaled last week.",
    "The induction hob beeps and goes off when two zones are on.",
    "Write the steps to change the carbon brushes of a universal motor.",
    "A vacuum cleaner smells of burning after ten minutes. The filter is new.",
    "Why does a microwave trip the breaker only when its door closes?",
    "List five things to measure before I condemn a control board.",
    "A toaster pops up at once, and pressing the lever longer does not help.",
    "The display of a bread maker shows H:HH. What does it mean, and what now?",
    "Explain in three sentences how a bimetal thermostat works.",
    "A food processor runs only when I hold the lid down hard.",
)

Encode = Callable[[str], Sequence[int]]


class WorkloadError(ValueError):
    """A prompt file that cannot be used; the message is one line."""


def prompts(file: Path | None, encode: Encode | None, limit: int | None = None) -> list[list[int]]:
    """Token ids of each prompt: from ``file``, or the built-in ones for None.

    A ``.jsonl`` file has one object a line, with ``prompt`` (text) or ``prompt_token_ids``; any other one has a prompt
    a line. ``encode`` turns text into ids; None when the model has no tokenizer. At most ``limit`` of them. Raises
    WorkloadError with the line's number.
    """
    if file is None:
        entries: list[tuple[str, Any]] = [("the built-in workload", PREAMBLE + question) for question in QUESTIONS]
    else:
        entries = list(_read(file))
    if not entries:
        raise WorkloadError(f"{file} has no prompt in it")
    found = []
    for where, entry in entries[:limit]:
        if isinstance(entry, str):
            if encode is None:
                raise WorkloadError(f"{where} is text, and the model's folder has no tokenizer; give prompt_token_ids")
            entry = [int(token) for token in encode(entry)]
        if not entry:
            raise WorkloadError(f"{where} has no token")
        found.append(entry)
    return found


def _read(file: Path) -> list[tuple[str, Any]]:
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8 text"
        raise WorkloadError(f"{file} cannot be read: {reason}") from None
    found = []
    for number, line in enumerate(lines, 1):
        where = f"{file}, line {number}"
        if line.strip():
            found.append((where, _entry(line, where) if file.suffix == ".jsonl" else line))
    return found


def _entry(line: str, where: str) -> str | list[int]:
    try:
        value = json.loads(line)
    except ValueError as error:
        raise WorkloadError(f"{where} is no JSON: {error}") from None
    if isinstance(value, dict):
        text, ids = value.get("prompt"), value.get("prompt_token_ids")
        if isinstance(text, str):
            return text
        if isinstance(ids, list) and all(isinstance(token, int) and not isinstance(token, bool) for token in ids):
            return ids
    raise WorkloadError(f'{where} has neither "prompt" (text) nor "prompt_token_ids" (a list of integers)')
