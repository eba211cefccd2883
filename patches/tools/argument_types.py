"""Give the arguments of a call the types of the tool's whole schema: references, unions, constants, Python spellings

Symptom: ``{"$ref": "#/$defs/Point"}``, which every pydantic model has, gives a string with JSON in it; ``const``
gives a string; ``01234`` for string or integer loses its zero; ``['a']``, ``True`` and ``None`` stay strings.

Cause: ``ParserEngine._fix_arg_types`` sees the properties of the schema only, and ``coerce_to_schema_type`` knows names
of types only and tries ``int()`` first.

Change: the same method converts with :class:`engine_overlay.text.schema.Schema`; arguments that have their types
already come back as they are, byte by byte. Which strings may be streamed before their end is decided by the same
rules, so that a stream never contradicts the full answer.

Risk: a value inside an object or an array gets the type of its own schema too, ``2024`` becomes ``"2024"`` there.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from engine_overlay.engines import Engine
from engine_overlay.record import Finding, Outcome, Patch, Range, Target
from engine_overlay.text.json_arguments import loads
from engine_overlay.text.schema import Schema, dump, refers
from engine_overlay.text.tools import schema_of

_PARSER = "parser.engine.parser_engine:ParserEngine"

PATCH = Patch(
    id="argument_types",
    engines={"vllm": Range("0.24.0", "0.33.0"), "aphrodite": Range("0.22.0", "0.24.1")},
    targets=(
        Target(path=f"{_PARSER}._fix_arg_types", bodies=("05211720bb66",)),
        Target(path=f"{_PARSER}._streamable_string_keys", bodies=("46d77d1897c1",)),
    ),
    reads=(
        Target(
            path="tool_parsers.utils:find_tool_properties",
            bodies=(
                "3f9806868fdf",
                "76658725eb8b",
                "bfc0d98bba92",
            ),
        ),
    ),
    upstream=(),
    relationship="different approach",
    introduced_in={"vllm": "0.24.0", "aphrodite": "0.22.0"},
    fixed_in={"vllm": None, "aphrodite": None},
    superseded_by=None,
    group=None,
    requires=(),
    after=(),
    conflicts=(),
    default=True,
    default_reason="arguments that fit their schema are the same bytes, and the others get the types it gives them",
    scope=("server",),
    native_alternative=None,
    remove_when="the engine converts by the whole schema, references and combinations included",
)


def build(engine: Engine, originals: Mapping[str, Any]) -> Mapping[str, Any]:
    """The replacements of both methods."""
    find_properties = engine.module("tool_parsers.utils").find_tool_properties

    def fix_arg_types(self: Any, args_json: str, func_name: str) -> str:
        schema = schema_of(self._tools, func_name, find_properties) if self._tools and func_name else None
        if schema is None:
            return args_json
        before = loads(args_json)
        if not isinstance(before, dict):
            return args_json

        def typed(name: str, value: Any) -> Any:
            shape = schema.of(name)
            if shape is None:
                return value
            # A parameter that can only be a string was written as one.
            return "null" if value is None and shape.kinds == {"string"} else schema.conform(value, shape)

        after = {name: typed(name, value) for name, value in before.items()}
        # As text, for in Python 1, 1.0 and True are equal.
        return args_json if dump(after) == dump(before) else dump(after)

    def streamable_string_keys(properties: Any) -> set[str] | None:
        if not properties:
            return None
        schema = Schema({"properties": properties})
        return {name for name, node in properties.items() if schema.shape(node).is_text and not refers(node)}

    return {
        f"{_PARSER}._fix_arg_types": fix_arg_types,
        f"{_PARSER}._streamable_string_keys": staticmethod(streamable_string_keys),
    }


def probe(engine: Engine) -> Finding:
    """Let the engine's own method give the type to an argument whose schema is a reference."""
    if engine.source("parser.engine.parser_engine") is None:
        return Finding(Outcome.ABSENT, "this release has no parser engine; its parsers type arguments by themselves")
    parser_class = engine.module("parser.engine.parser_engine").ParserEngine
    protocol = engine.module("entrypoints.openai.chat_completion.protocol")
    tool = {
        "name": "f",
        "parameters": {
            "type": "object",
            "$defs": {"P": {"type": "object", "properties": {"x": {"type": "integer"}}}},
            "properties": {"p": {"$ref": "#/$defs/P"}},
        },
    }
    parser = object.__new__(parser_class)
    parser._tools = [protocol.ChatCompletionToolsParam(type="function", function=tool)]
    got = parser._fix_arg_types('{"p": "{\\"x\\": 1}"}', "f")
    evidence = f"an argument that is a $ref to an object gives {got}"
    if got == '{"p": {"x": 1}}':
        return Finding(Outcome.ABSENT, evidence)
    if got == '{"p": "{\\"x\\": 1}"}':
        return Finding(Outcome.PRESENT, evidence)
    return Finding(Outcome.UNKNOWN, evidence)
