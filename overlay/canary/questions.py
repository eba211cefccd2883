"""What is asked: for each check its questions. Nothing in them asks a model for a tag unless ``about_tags`` says so."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

BUDGET = 64
"""Tokens of thought that the requests of the check ``budget`` allow."""

STOP = "[[canary: end of text]]"
"""A stop string that no answer says. An engine holds back as many characters as it is long."""

CHECKS: Mapping[str, str] = {
    "text": "ordinary questions",
    "quotes": "questions about tags, which an answer quotes",
    "stop": "requests with a stop string that never comes",
    "loops": "questions that make models repeat themselves",
    "types": "one tool for each JSON type, streaming and full",
    "choice": "tool_choice required and named, streaming and full",
    "budget": "requests with thinking_token_budget",
    "parallel": "streams at once, each with a word of its own",
    "own": "your own prompts",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """One request. ``fields`` go into it as they are.

    ``about_tags``: an answer may well name tags. ``calls``: the tool that it asks to be called. ``word``: a word that
    no other question has.
    """

    check: str
    name: str
    messages: Sequence[Mapping[str, Any]]
    streamed: bool = True
    tools: Sequence[Mapping[str, Any]] = ()
    fields: Mapping[str, Any] = field(default_factory=dict)
    about_tags: bool = False
    calls: str = ""
    word: str = ""

    @property
    def text(self) -> str:
        """All that it says, to look words up in."""
        return json.dumps([*self.messages, *self.tools], ensure_ascii=False)

    @property
    def declared(self) -> dict[str, Any]:
        """Name of each declared tool -> its parameters' schema."""
        found = {}
        for tool in self.tools:
            said = tool.get("function", {})
            if isinstance(said, Mapping) and isinstance(said.get("name"), str):
                found[said["name"]] = said.get("parameters") or {}
        return found


_TEXT = (
    "What is 17 times 23? Think briefly, then answer with one short sentence.",
    "Name the capital of France and one river that runs through it, in one sentence.",
    'Answer with one JSON object that has the keys "city" and "country", for Rome.',
    "Write a Python function that returns the larger of two numbers, in a code block, without explanation.",
    "Write a small HTML page with a heading and a list of three fruits, in a code block.",
    "Give three reasons to drink water, as a numbered list, five words each.",
    "Translate into German and into Japanese: good morning, dear friends.",
)

_QUOTES = (
    "In one sentence: what does the tag `</think>` mean in the output of a reasoning model? Put the tag in backticks.",
    "Write one Python line that splits a string at `</think>`, in a code block, and say in one sentence what it does.",
    "A model prints `<tool_call>` before it calls a tool. Say in one sentence why a parser needs that tag; "
    "put the tag in backticks.",
)

_LOOPS = (
    "Is there an emoji of a seahorse? Think about it carefully, and print it if there is one.",
    "This sentence is false. Is the sentence before this one true? Decide, and give one word.",
    "Continue this series until you see the rule, then name the rule: 1, 11, 21, 1211, 111221, 312211.",
    "List sixty different animals, one a line, no animal twice.",
    "Find a word of the English language that has no vowel, no consonant and five letters, or say that there is none.",
    "Three people share a bill of 30 that should have been 25; each gets 1 back and the waiter keeps 2. "
    "27 and 2 is 29. Where is the missing 1?",
)

_POINT = {
    "type": "object",
    "properties": {"lat": {"type": "number"}, "lon": {"type": "number"}},
    "required": ["lat", "lon"],
}
_READING = {
    "type": "object",
    "properties": {"at": {"type": "string"}, "degrees": {"type": "number"}, "sure": {"type": "boolean"}},
    "required": ["at", "degrees", "sure"],
}

TYPES: Mapping[str, tuple[Mapping[str, Any], Any]] = {
    "string": ({"type": "string"}, 'the "best" café'),
    "digits": ({"type": "string", "description": "A post code; text, not a number"}, "01234"),
    "integer": ({"type": "integer"}, 7),
    "number": ({"type": "number"}, 21.5),
    "boolean": ({"type": "boolean"}, True),
    "array": ({"type": "array", "items": {"type": "integer"}}, [3, 5, 8]),
    "object": (_POINT, {"lat": 48.5, "lon": 2.25}),
    "nested": (
        {
            "type": "object",
            "properties": {"city": {"type": "string"}, "readings": {"type": "array", "items": _READING}},
            "required": ["city", "readings"],
        },
        {"city": "Rome", "readings": [{"at": "noon", "degrees": 30.5, "sure": True}]},
    ),
    "reference": ({"$ref": "#/$defs/Point"}, {"lat": 48.5, "lon": 2.25}),
    "nullable": ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, 12),
}
"""Name of a type -> its schema, and the value that the question names."""


def tool(kind: str) -> dict[str, Any]:
    """The tool with one required parameter ``value`` of this type."""
    schema = TYPES[kind][0]
    parameters: dict[str, Any] = {"type": "object", "properties": {"value": schema}, "required": ["value"]}
    if "$ref" in schema:
        parameters["$defs"] = {"Point": _POINT}
    name = f"record_{kind}"
    return {
        "type": "function",
        "function": {"name": name, "description": f"Records one value ({kind})", "parameters": parameters},
    }


def typed(kind: str, check: str = "types", **more: Any) -> Question:
    """The question that asks for one call of the tool of this type."""
    value = json.dumps(TYPES[kind][1], ensure_ascii=False)
    said = f"Call the tool record_{kind} exactly once, with value set to {value}. Say nothing else."
    name = more.pop("name", kind)
    return Question(check=check, name=name, messages=_said(said), tools=(tool(kind),), calls=f"record_{kind}", **more)


def of_check(check: str) -> list[Question]:
    """The questions of one check, each once; those of ``parallel`` come from :func:`words`."""
    if check == "text":
        return [Question(check=check, name=f"text {n}", messages=_said(t)) for n, t in enumerate(_TEXT, 1)]
    if check == "quotes":
        return [
            Question(check=check, name=f"quote {n}", messages=_said(t), about_tags=True, streamed=streamed)
            for n, t in enumerate(_QUOTES, 1)
            for streamed in (True, False)
        ]
    if check == "stop":
        fields = {"stop": [STOP]}
        plain = [Question(check=check, name=f"text {n}", messages=_said(_TEXT[n - 1]), fields=fields) for n in (1, 2)]
        return [*plain, typed("integer", check, fields=fields, name="call")]
    if check == "loops":
        return [Question(check=check, name=f"loop {n}", messages=_said(t)) for n, t in enumerate(_LOOPS, 1)]
    if check == "types":
        return [typed(kind, streamed=streamed) for kind in TYPES for streamed in (True, False)]
    if check == "choice":
        named = {"type": "function", "function": {"name": "record_integer"}}
        return [
            typed("integer", check, streamed=streamed, name=name, fields={"tool_choice": choice})
            for name, choice in (("required", "required"), ("named", named))
            for streamed in (True, False)
        ]
    if check == "budget":
        said = "How many of the numbers from 1 to 60 can be divided by 3 or by 5? Think step by step, then answer."
        fields = {"thinking_token_budget": BUDGET}
        return [
            Question(check=check, name=name, messages=_said(text), fields=fields, streamed=streamed)
            for name, text in (("long thought", said), ("short thought", _TEXT[0]))
            for streamed in (True, False)
        ]
    return []


_TOPICS = ("the sea", "bread", "trains", "winter", "glass", "maps", "bees", "stairs")


def words(count: int, dice: random.Random) -> list[Question]:
    """Questions to be asked at the same time, each with a word of its own that it asks for."""
    found = []
    for n in range(count):
        word = "w" + "".join(dice.choice("bcdfghjkmnpqrstvwxz23456789") for _ in range(9))
        said = f"Write the code word {word} once, then two short sentences about {_TOPICS[n % len(_TOPICS)]}."
        found.append(Question(check="parallel", name="words", messages=_said(said), word=word))
    return found


def own(text: str, name: str) -> list[Question]:
    """Questions of a user's file: a prompt a line, or a JSON object a line with ``prompt`` or ``messages``.

    Every other field of such an object goes into the request, ``tools`` and ``stream`` too. Raises ValueError with the
    number of the line that cannot be used.
    """
    found = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        given: Any = {"prompt": line.strip()}
        if line.lstrip().startswith("{"):
            try:
                given = json.loads(line)
            except ValueError as error:
                raise ValueError(f"line {number} of {name} begins as JSON and is none ({error})") from None
        messages = given.pop("messages", None) or _said(given.pop("prompt", ""))
        good = isinstance(messages, (list, tuple)) and all(map(_is_message, messages))
        tools = given.pop("tools", [])
        if not good or not isinstance(tools, list) or not all(isinstance(t, dict) for t in tools):
            raise ValueError(f"line {number} of {name} has no prompt, and no messages with a content")
        streamed = given.pop("stream", True) is not False
        found.append(
            Question(
                check="own", name=f"line {number}", messages=messages, tools=tools, streamed=streamed, fields=given,
                about_tags=True,
            )  # fmt: skip
        )
    if not found:
        raise ValueError(f"{name} has no prompt in it")
    return found


def _is_message(message: Any) -> bool:
    return isinstance(message, dict) and isinstance(message.get("content"), (str, list)) and bool(message["content"])


def _said(text: str) -> tuple[dict[str, str], ...]:
    return ({"role": "user", "content": text},)
