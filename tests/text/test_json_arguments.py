"""JSON arguments while they are written: healthy ones byte for byte, others mended, the same however they are cut."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine_overlay.text.json_arguments import JsonArguments
from engine_overlay.text.schema import Schema
from tests.text.schema_cases import CASES, DEFS


def read(text: str, cuts: tuple[int, ...] = (), schema: Schema | None = None) -> str:
    arguments = JsonArguments(schema)
    ends = [*sorted(min(cut, len(text)) for cut in cuts), len(text)]
    said, at = "", 0
    for end in ends:
        said += arguments.feed(text[at:end])
        at = end
    said += arguments.finish()
    assert said == arguments.json
    return said


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)
OBJECTS = st.dictionaries(st.text(max_size=4), VALUES, max_size=4)
LAYOUTS = st.sampled_from([{}, {"indent": 1}, {"separators": (",", ":")}, {"ensure_ascii": False}])
CUTS = st.lists(st.integers(0, 200), max_size=6).map(tuple)


@settings(deadline=None)
@given(OBJECTS, LAYOUTS, CUTS)
def test_healthy_json_is_passed_on_byte_for_byte(value, layout, cuts):
    text = json.dumps(value, **layout)
    assert read(text, cuts) == text


@settings(deadline=None)
@given(OBJECTS, st.integers(0, 200), CUTS)
def test_json_that_is_cut_off_is_closed_and_keeps_what_was_written(value, end, cuts):
    text = json.dumps(value)[:end]
    said = read(text, cuts)
    got = json.loads(said)
    assert isinstance(got, dict)
    items = list(value.items())
    whole = [key for n, (key, _) in enumerate(items) if len(json.dumps(dict(items[: n + 1]))) - 1 <= end]
    assert all(got[key] == value[key] for key in whole)


@settings(max_examples=400, deadline=None)
@given(st.text(alphabet='{}[]",:\\ \nabtnu01.-e\'TrueNone', max_size=40), CUTS)
def test_whatever_a_model_writes_becomes_one_json_object_however_it_is_cut(text, cuts):
    said = read("{" + text, cuts)
    assert said == read("{" + text)
    assert isinstance(json.loads(said), dict)


MENDED = {
    "a raw line end in a string": ('{"a": "x\ny"}', {"a": "x\ny"}),
    "a comma too many": ('{"a": [1, 2,], "b": 1,}', {"a": [1, 2], "b": 1}),
    "a comma too few": ('{"a": "x" "b": 2}', {"a": "x", "b": 2}),
    "no end of the string": ('{"a": "x', {"a": "x"}),
    "half an escape": ('{"a": "x\\u00e', {"a": "x"}),
    "no such escape": ('{"a": "C:\\dir"}', {"a": "C:\\dir"}),
    "a number that was cut": ('{"a": 12', {"a": 12}),
    "a word that was cut": ('{"a": tr', {"a": True}),
    "a key without a value": ('{"a": 1, "b":', {"a": 1}),
    "a python spelling": ("{'a': None, 'b': True, 'c': 'it is'}", {"a": None, "b": True, "c": "it is"}),
    "keys without quotes": ('{a: 1, b: "x"}', {"a": 1, "b": "x"}),
    "json in a string": ('"{\\"a\\": 1}"', {"a": 1}),
    "null for no arguments": ("null", {}),
    "nothing at all": ("", {}),
}


@pytest.mark.parametrize("name", MENDED)
def test_broken_json_is_mended(name):
    text, wanted = MENDED[name]
    for cut in range(len(text) + 1):
        assert json.loads(read(text, (cut,))) == wanted, (name, cut)


def test_what_follows_the_object_is_left_to_the_caller():
    arguments = JsonArguments(None)
    assert arguments.feed('{"a": "}"} \n{"b"') == '{"a": "}"}'
    assert arguments.done and arguments.rest == ' \n{"b"'


def test_a_marker_is_only_inside_a_string_while_one_is_open():
    arguments = JsonArguments(None)
    seen = []
    for char in '{"a": "x", "b": 1}':
        arguments.feed(char)
        seen.append(arguments.in_string)
    assert "".join("s" if inside else "." for inside in seen) == ".ss...ss...ss....."


def typed(node, written: str):
    schema = Schema({"type": "object", "properties": {"p": node}, "$defs": DEFS})
    text = f'{{"p": {written}}}'
    results = {read(text, tuple(range(0, 300, step)), schema) for step in (1, 3, 300)}
    assert len(results) == 1
    return json.loads(results.pop())["p"]


@pytest.mark.parametrize("case", CASES)
def test_a_value_of_the_right_type_stays_as_it_is(case):
    node, _, wanted = CASES[case]
    assert json.dumps(typed(node, json.dumps(wanted))) == json.dumps(wanted)


def allows_a_string(node) -> bool:
    kinds = Schema({"properties": {"p": node}, "$defs": DEFS}).of("p").kinds
    return not kinds or "string" in kinds


@pytest.mark.parametrize("case", [case for case in CASES if not allows_a_string(CASES[case][0])])
def test_a_value_in_quotes_gets_the_type_of_its_schema(case):
    node, raw, wanted = CASES[case]
    assert json.dumps(typed(node, json.dumps(raw))) == json.dumps(wanted)


@pytest.mark.parametrize("case", ["plain, string or integer", "nullable string, null", "string or object"])
def test_a_value_in_quotes_stays_a_string_where_the_schema_allows_one(case):
    node, raw, _ = CASES[case]
    assert typed(node, json.dumps(raw)) == raw


@settings(deadline=None)
@given(st.sampled_from(sorted(CASES)), VALUES, CUTS)
def test_any_value_of_any_schema_becomes_json_the_same_however_it_is_cut(case, value, cuts):
    schema = Schema({"type": "object", "properties": {"x": CASES[case][0]}, "$defs": DEFS})
    text = json.dumps({"y": 1, "x": value, "z": [value]})
    said = read(text, cuts, schema)
    assert said == read(text, (), schema)
    assert json.loads(said).keys() == {"x", "y", "z"} and json.loads(said)["z"] == [value]


def test_an_array_where_the_schema_wants_a_number_is_passed_on():
    schema = Schema({"type": "object", "properties": {"x": {"type": "integer"}}})
    assert read('{"x": [7, {"a": 1}]}', (), schema) == '{"x": [7, {"a": 1}]}'
    assert read('{"x": [7}}', (), schema) == '{"x": [7]}'
