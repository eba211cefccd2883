"""The converter: type by type, what stays a string, references, and that nothing is lost or beyond JSON."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine_overlay.text.schema import Schema, dump

INT, NUM, STR, BOOL, NULL = ({"type": t} for t in ("integer", "number", "string", "boolean", "null"))
NODE = {"type": "object", "properties": {"v": INT, "next": {"$ref": "#/$defs/Node"}}}
CAT = {"type": "object", "properties": {"kind": {"const": "cat"}, "lives": INT}, "required": ["kind"]}
DOG = {"type": "object", "properties": {"kind": {"const": "dog"}, "lives": STR}, "required": ["kind"]}
DEFS = {
    "Node": NODE,
    "Count": INT,
    "Colour": {"enum": ["red", 1, None]},
    "Loop": {"$ref": "#/$defs/Loop"},
    "A": {"$ref": "#/$defs/B"},
    "B": {"$ref": "#/$defs/A"},
    "a/b": INT,
    "Cat": CAT,
    "Dog": DOG,
}


def convert(raw, node):
    schema = Schema({"type": "object", "properties": {"p": node}, "$defs": DEFS})
    return schema.convert(raw, schema.of("p"))


CASES = {
    "string": (STR, "x", "x"),
    "string that looks like an integer": (STR, "42", "42"),
    "string that looks like null": (STR, "null", "null"),
    "string that looks like JSON": (STR, '{"x": 1}', '{"x": 1}'),
    "integer": (INT, "42", 42),
    "integer with space": (INT, " -7\n", -7),
    "integer written as a fraction": (INT, "3.0", 3),
    "no integer": (INT, "many", "many"),
    "number": (NUM, "0.5", 0.5),
    "number with an exponent": (NUM, "1e3", 1000),
    "number without a fraction": (NUM, "7", 7),
    "infinity": (NUM, "inf", "inf"),
    "beyond the range": (NUM, "1e999", "1e999"),
    "nan": (NUM, "NaN", "NaN"),
    "boolean": (BOOL, "true", True),
    "boolean in Python": (BOOL, "False", False),
    "boolean as a bit": (BOOL, "1", True),
    "null": (NULL, "null", None),
    "null in Python": ({"anyOf": [INT, NULL]}, "None", None),
    "nullable string, null": ({"type": ["string", "null"]}, "null", None),
    "nullable string, text": ({"type": ["string", "null"]}, "nullable", "nullable"),
    "nullable keyword": ({"type": "integer", "nullable": True}, "null", None),
    "array": ({"type": "array"}, "[1, 2]", [1, 2]),
    "array in Python": ({"type": "array"}, "['a', True, None]", ["a", True, None]),
    "tuple": ({"type": "array"}, "('a', 1)", ["a", 1]),
    "array of infinity": ({"type": "array"}, "[1e999]", "[1e999]"),
    "object": ({"type": "object"}, '{"k": 3}', {"k": 3}),
    "object in Python": ({"type": "object"}, "{'a': True, 'b': None}", {"a": True, "b": None}),
    "object in Python, keys no strings": ({"type": "object"}, "{1: 2}", "{1: 2}"),
    "object, inner string": ({"properties": {"year": STR}}, '{"year": 2024}', {"year": "2024"}),
    "object, inner integer": ({"properties": {"n": INT}}, '{"n": "5"}', {"n": 5}),
    "object, additional": ({"type": "object", "additionalProperties": INT}, '{"n": "5"}', {"n": 5}),
    "items": ({"type": "array", "items": INT}, '["1", "2"]', [1, 2]),
    "prefix items": ({"type": "array", "prefixItems": [INT, STR]}, '["1", 2]', [1, "2"]),
    "items in items": ({"type": "array", "items": {"type": "array", "items": INT}}, '[["1"], []]', [[1], []]),
    "zero-padded, string or integer": ({"oneOf": [INT, STR]}, "01234", "01234"),
    "plain, string or integer": ({"oneOf": [INT, STR]}, "42", 42),
    "signed, string or integer": ({"oneOf": [INT, STR]}, "+5", "+5"),
    "a version, string or number": ({"type": ["string", "number"]}, "1.10", "1.10"),
    "string or boolean": ({"type": ["string", "boolean"]}, "true", True),
    "a bit, string or boolean": ({"type": ["string", "boolean"]}, "1", "1"),
    "string or object": ({"anyOf": [STR, {"type": "object"}]}, '{"a": 1}', {"a": 1}),
    "union without a string": ({"anyOf": [INT, {"type": "array"}]}, "[1]", [1]),
    "all of": ({"allOf": [INT, {"description": "how many"}]}, "3", 3),
    "all of, narrowed": ({"allOf": [NUM, INT]}, "3", 3),
    "enum of strings": ({"enum": ["1", "2"]}, "1", "1"),
    "enum of integers": ({"enum": [1, 2]}, "2", 2),
    "enum of both": ({"enum": ["1", 2]}, "1", "1"),
    "enum with null": ({"enum": ["a", None]}, "None", None),
    "const": ({"const": 5}, "5", 5),
    "const in a union": ({"oneOf": [{"const": 5}, {"const": "x"}]}, "5", 5),
    "no type": ({"description": "anything"}, "5", "5"),
    "anything": (True, "5", "5"),
    "another language's name": ({"type": "int"}, "5", 5),
    "reference": ({"$ref": "#/$defs/Count"}, "5", 5),
    "reference with a description": ({"$ref": "#/$defs/Count", "description": "n"}, "5", 5),
    "reference to an enum": ({"$ref": "#/$defs/Colour"}, "1", 1),
    "reference with an escaped name": ({"$ref": "#/$defs/a~1b"}, "5", 5),
    "reference to nothing": ({"$ref": "#/$defs/Nobody"}, "5", "5"),
    "reference to elsewhere": ({"$ref": "https://example.org/s"}, "5", "5"),
    "reference to itself": ({"$ref": "#/$defs/Loop"}, "5", "5"),
    "references in a circle": ({"$ref": "#/$defs/A"}, "5", "5"),
    "recursive": (NODE, '{"v": "1", "next": {"v": "2"}}', {"v": 1, "next": {"v": 2}}),
    "alternatives told apart by a tag": (
        {"anyOf": [{"$ref": "#/$defs/Cat"}, {"$ref": "#/$defs/Dog"}]},
        '{"kind": "dog", "lives": 9}',
        {"kind": "dog", "lives": "9"},
    ),
    "null inside stays": ({"properties": {"s": STR}}, '{"s": null}', {"s": None}),
}


@pytest.mark.parametrize("case", CASES)
def test_a_value_gets_the_type_of_its_schema(case):
    node, raw, wanted = CASES[case]
    assert json.dumps(convert(raw, node)) == json.dumps(wanted)


def test_references_that_multiply_each_other_end():
    names = [f"N{i}" for i in range(12)]
    union = {"anyOf": [{"$ref": f"#/$defs/{name}"} for name in names]}
    schema = Schema({"properties": {"p": union}, "$defs": dict.fromkeys(names, union)})
    assert schema.convert("x", schema.of("p")) == "x"


def test_a_value_nested_too_deep_stays_text():
    deep = "[" * 100_000 + "]" * 100_000
    assert convert(deep, {"type": "array"}) == deep


def test_half_a_surrogate_pair_can_be_sent():
    assert dump(convert(r'["\ud83d"]', {"type": "array"})).encode() == rb'["\ud83d"]'


SCHEMAS = st.recursive(
    st.sampled_from([*(case[0] for case in CASES.values())]),
    lambda inner: st.one_of(
        st.builds(lambda n: {"type": "array", "items": n}, inner),
        st.builds(lambda n: {"type": "object", "properties": {"a": n}}, inner),
        st.builds(lambda a, b: {"anyOf": [a, b]}, inner, inner),
        st.builds(lambda a, b: {"allOf": [a, b]}, inner, inner),
    ),
    max_leaves=6,
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=8,
)
RAW = st.text(max_size=20) | VALUES.map(json.dumps) | VALUES.map(repr)


@given(SCHEMAS, RAW)
def test_any_text_and_schema_give_valid_json(node, raw):
    text = dump(convert(raw, node))
    json.loads(text, parse_constant=lambda name: pytest.fail(name))


# Infinity is no JSON.
@given(VALUES.filter(lambda value: "Infinity" not in json.dumps(value)))
def test_json_of_the_right_type_keeps_its_value(value):
    kind = {dict: "object", list: "array", bool: "boolean", int: "integer", float: "number"}.get(type(value))
    if kind is not None:
        assert convert(json.dumps(value), {"type": kind}) == value


@given(st.text())
def test_a_string_is_the_text_itself(raw):
    assert convert(raw, STR) == raw
