"""Answers of the tiny model: the text, what a client should make of it, and how markers are spelled."""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tokenizers import Tokenizer

from .tiny_model import MARKERS

Spelling = Literal["whole", "spelled"]
"""Every marker as its one token, or as several sub-word tokens with the same text."""

TOOL = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather of a city",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
            "required": ["city"],
        },
    },
}


@dataclass(frozen=True, slots=True)
class Answer:
    """What a client is left with: texts joined, calls as (name, arguments in JSON)."""

    reasoning: str
    content: str
    calls: tuple[tuple[str, str], ...]
    finish: str | None


@dataclass(frozen=True, slots=True)
class Script:
    """What the model says after ``<think>``, and the answer that this text means."""

    text: str
    answer: Answer
    stop: tuple[str, ...] = ()


def call(city: str, days: int) -> str:
    """A call in the format of Qwen3-Coder."""
    return (
        "<tool_call>\n<function=get_weather>\n"
        f"<parameter=city>\n{city}\n</parameter>\n<parameter=days>\n{days}\n</parameter>\n"
        "</function>\n</tool_call>"
    )


def arguments(city: str, days: int) -> str:
    return f'{{"city": "{city}", "days": {days}}}'


SCRIPTS = {
    "plain": Script(
        "I should add the two.</think>\n\nThe answer is 42.",
        Answer("I should add the two.", "\n\nThe answer is 42.", (), "stop"),
    ),
    "tool": Script(
        f"I should look.</think>\n\n{call('Paris', 3)}",
        Answer("I should look.", "", (("get_weather", arguments("Paris", 3)),), "tool_calls"),
    ),
    "stop": Script(
        "I should count.</think>\n\none two three HALT four",
        Answer("I should count.", "\n\none two three ", (), "stop"),
        stop=("HALT",),
    ),
    "tool, stop not reached": Script(
        f"I should look.</think>\n\n{call('Paris', 3)}",
        Answer("I should look.", "", (("get_weather", arguments("Paris", 3)),), "tool_calls"),
        stop=("HALT",),
    ),
}
"""Spelled or whole, these texts mean the same."""

QUOTED = Script(
    "The tag `{tag}` closes it.</think>\n\nUse `{tag}` there.".replace("{tag}", "</think>"),
    Answer("The tag `</think>` closes it.", "\n\nUse `</think>` there.", (), "stop"),
)
"""The end of reasoning is whole; before and after it the tag is only quoted, in sub-words."""


class Speller:
    """Turns a text into token ids of the tiny model."""

    def __init__(self, model: Path) -> None:
        self._tokenizer = Tokenizer.from_file(str(model / "tokenizer.json"))

    def ids(self, text: str, spelling: Spelling) -> list[int]:
        """Token ids whose text is ``text``; ``spelled`` cuts every marker after its ``<`` or ``</``."""
        ids: list[int] = []
        for part in _parts(text):
            if part in MARKERS and spelling == "spelled":
                name = part.lstrip("</")
                ids += self._encode(part.removesuffix(name)) + self._encode(name)
            else:
                ids += self._encode(part)
        return ids

    def quoted(self) -> list[int]:
        """:data:`QUOTED`: a marker between backticks in sub-words, the others whole."""
        ids: list[int] = []
        for piece in QUOTED.text.replace("`</think>`", "\0`</think>`\0").split("\0"):
            ids += self.ids(piece, "spelled" if piece.startswith("`") else "whole")
        return ids

    def text(self, ids: list[int]) -> str:
        return self._tokenizer.decode(ids, skip_special_tokens=False)

    def _encode(self, text: str) -> list[int]:
        return self._tokenizer.encode(text, add_special_tokens=False).ids


def stream_of_its_own(number: int) -> Script:
    """Script ``number`` of a crowd: no other one has any of its words; every third ends in a call."""
    dice = random.Random(number)
    words = [f"n{number}x{dice.randrange(10**6)}" for _ in range(30)]
    reasoning, content = " ".join(words[:12]), " ".join(words[12:])
    if number % 3 == 0:
        text = f"{reasoning}</think>\n\n{call(words[0], number)}"
        made = (("get_weather", arguments(words[0], number)),)
        return Script(text, Answer(reasoning, "", made, "tool_calls"))
    return Script(f"{reasoning}</think>\n\n{content}", Answer(reasoning, f"\n\n{content}", (), "stop"))


def spelling_of(number: int) -> Spelling:
    return "spelled" if number % 2 else "whole"


def leaked(script: Script) -> Answer:
    """What a client of the stock engine gets from a stream with spelled markers: all of it as reasoning."""
    return Answer(script.text, "", (), "stop")


def _parts(text: str) -> list[str]:
    parts: list[str] = []
    while text:
        at = min((i for m in MARKERS if (i := text.find(m)) >= 0), default=len(text))
        marker = next((m for m in MARKERS if text.startswith(m, at)), "")
        parts += [part for part in (text[:at], marker) if part]
        text = text[at + len(marker) :]
    return parts
