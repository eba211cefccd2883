"""The converter: type by type, what stays a string, references, and that nothing is lost or beyond JSON."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine_overlay.text.schema import Schema, dump
from tests.text.schema_cases import CASES, DEFS, STR


def convert(raw, node):
    schema = Schema({"type": "object", "properties": {"p": node}, "$defs": DEFS})
    return schema.convert(raw, schema.of("p"))


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
