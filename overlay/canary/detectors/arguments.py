"""The arguments of calls: JSON objects, of the types that the tool's schema names.

Values are not compared: what a model puts in is its own affair, as long as it fits the schema.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from engine_overlay.canary.answer import Answer, Call
from engine_overlay.canary.finding import Found
from engine_overlay.canary.questions import Question
from engine_overlay.text.schema import Schema, Shape

_KINDS = frozenset(("null", "integer", "number", "boolean", "object", "array", "string"))


def look(question: Question, answer: Answer) -> Iterator[Found]:
    declared = question.declared
    for index, call in enumerate(answer.calls):
        last = index == len(answer.calls) - 1
        if not answer.complete and last:
            # Cut off by a limit, as it may be.
            return
        if call.name not in declared:
            # A tool that the model made up, or none, which is told elsewhere.
            continue
        found = _judge(call, declared[call.name], index, question)
        if found:
            yield found
            return


def _judge(call: Call, schema: Any, index: int, question: Question) -> Found | None:
    text, name = call.arguments, f"arguments {index}"
    required = schema.get("required") if isinstance(schema, dict) else None
    if not text.strip() and not required:
        # Some servers send nothing for no arguments.
        return None
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        if not text.strip():
            return Found("lost arguments", f"{call.name} without arguments", text, name, 0, 1)
        at = min(getattr(error, "pos", 0), len(text) - 1)
        return Found("invalid arguments", f"{call.name}: {error}", _around(text, at), name, at, at + 1)
    if not isinstance(value, dict):
        return Found("invalid arguments", f"{call.name}: {_kind(value)}, no object", text[:160], name, 0, len(text))
    if not value and required and question.calls == call.name:
        return Found("lost arguments", f"{call.name} without {', '.join(required)}", text, name, 0, 2)
    whole = Schema(schema)
    for path, wanted, got in misfits(value, whole, whole.shape(schema), ""):
        said = f"{call.name}: {path} is {got}, and the schema says {wanted}"
        return Found("wrong type", said, text if len(text) <= 300 else text[:297] + "...", name, 0, len(text))
    return None


def misfits(value: Any, whole: Schema, shape: Shape, path: str) -> Iterator[tuple[str, str, str]]:
    """(path, types that the schema allows, type that is there) for each value that has another one."""
    kinds = shape.kinds
    if kinds and kinds <= _KINDS and not _fits(value, kinds):
        yield path or "the whole", " or ".join(sorted(kinds)), f"{_kind(value)} {json.dumps(value)[:60]}"
        return
    if shape.branches:
        # Which alternative is meant, and so what is inside, is not for us to say.
        return
    if isinstance(value, dict):
        for key, inner in value.items():
            if key in shape.properties:
                yield from misfits(inner, whole, whole.shape(shape.properties[key]), f"{path}.{key}".lstrip("."))
    elif isinstance(value, list) and isinstance(shape.items, dict) and not shape.prefix:
        for at, inner in enumerate(value):
            yield from misfits(inner, whole, whole.shape(shape.items), f"{path}[{at}]")


def _fits(value: Any, kinds: frozenset[str]) -> bool:
    kind = _kind(value)
    if kind in kinds or (kind == "integer" and "number" in kinds):
        return True
    # 3.0 is an integer by JSON Schema.
    return kind == "number" and "integer" in kinds and float(value).is_integer()


def _kind(value: Any) -> str:
    if value is None:
        return "null"
    for types, name in ((bool, "boolean"), (int, "integer"), (float, "number"), (str, "string"), (list, "array")):
        if isinstance(value, types):
            return name
    return "object"


def _around(text: str, at: int) -> str:
    return text[max(0, at - 80) : at + 80]
