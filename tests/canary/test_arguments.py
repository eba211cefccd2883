"""Types by the tool's schema: what does not fit is found, and every value that fits is none."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine_overlay.canary.questions import TYPES, Question, typed
from tests.canary.made import answer, kinds

WRONG: list[tuple[str, Any]] = [
    ("string", 7), ("digits", 1234), ("integer", "7"), ("integer", 7.5), ("integer", None), ("number", "21.5"),
    ("number", True), ("boolean", "true"), ("boolean", 1), ("array", "[3, 5, 8]"), ("array", [3, "5"]),
    ("object", "{'lat': 1}"), ("object", {"lat": "48.5", "lon": 2}), ("nested", {"city": 5, "readings": []}),
    ("nested", {"city": "Rome", "readings": [{"at": "noon", "degrees": 1, "sure": "True"}]}),
    ("nested", {"city": "Rome", "readings": {"item": {}}}), ("reference", '{"lat": 48.5}'),
    ("reference", {"lat": "48.5", "lon": 2.25}), ("nullable", "12"), ("nullable", "null"),
]  # fmt: skip
RIGHT: list[tuple[str, Any]] = [
    *((kind, value) for kind, (_, value) in TYPES.items()),
    ("string", ""), ("integer", -3), ("integer", 7.0), ("number", 3), ("boolean", False), ("array", []),
    ("object", {"lat": 1, "lon": 2, "more": "x"}), ("nullable", None), ("nested", {"city": "Rome", "readings": []}),
]  # fmt: skip


def _called(kind: str, value: Any) -> list[str]:
    text = json.dumps({"value": value}, ensure_ascii=False)
    return kinds(typed(kind), answer(calls=((f"record_{kind}", text),), reasoning="Hm."))


@pytest.mark.parametrize(("kind", "value"), WRONG)
def test_a_value_of_another_type(kind: str, value: Any) -> None:
    assert _called(kind, value) == ["wrong type"]


@pytest.mark.parametrize(("kind", "value"), RIGHT)
def test_a_value_that_fits(kind: str, value: Any) -> None:
    assert _called(kind, value) == []


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ('{"value": 7', "invalid arguments"),
        ('{"value": 7}}', "invalid arguments"),
        ('{"value": }', "invalid arguments"),
        ('"7"', "invalid arguments"),
        ("[7]", "invalid arguments"),
        ("{}", "lost arguments"),
        ("", "lost arguments"),
    ],
)
def test_arguments_that_are_no_object(text: str, kind: str) -> None:
    assert kinds(typed("integer"), answer(calls=(("record_integer", text),), reasoning="Hm.")) == [kind]


def test_arguments_that_a_limit_cut_off_are_not_judged() -> None:
    given_answer = answer(calls=(("record_integer", '{"val'),), reasoning="Hm.", finish="length")
    assert kinds(typed("integer"), given_answer) == []


def test_a_model_may_call_what_it_made_up() -> None:
    assert kinds(typed("integer"), answer(calls=(("another", "{}"),), reasoning="Hm.")) == []


@pytest.mark.parametrize(
    "schema",
    [
        {}, True, None, {"type": "file"}, {"type": ["string", "integer"]}, {"enum": [7, "seven"]},
        {"oneOf": [{"type": "object", "properties": {"a": {"type": "string"}}}, {"type": "integer"}]},
        {"$ref": "#/$defs/nowhere"}, {"allOf": [{"minimum": 1}, {"type": "number"}]},
    ],
)  # fmt: skip
def test_schemas_of_users_that_allow_more(schema: Any) -> None:
    parameters = {"type": "object", "properties": {"x": schema}}
    tool = {"type": "function", "function": {"name": "f", "parameters": parameters}}
    question = Question(check="own", name="x", messages=({"role": "user", "content": "Go"},), tools=(tool,))
    assert kinds(question, answer(calls=(("f", '{"x": 7}'),), reasoning="Hm.")) == []


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_whatever_fits_its_schema_is_none(data: st.DataObject) -> None:
    numbers = st.integers(-(10**9), 10**9) | st.floats(allow_nan=False, allow_infinity=False)
    point = st.fixed_dictionaries({"lat": numbers, "lon": numbers})
    text = st.text(alphabet=st.characters(exclude_categories=["Cs"], exclude_characters="<>"))
    reading = st.fixed_dictionaries({"at": text, "degrees": numbers, "sure": st.booleans()})
    values = {
        "string": text, "digits": text, "integer": st.integers(), "number": numbers, "boolean": st.booleans(),
        "array": st.lists(st.integers()), "object": point, "reference": point, "nullable": st.none() | st.integers(),
        "nested": st.fixed_dictionaries({"city": text, "readings": st.lists(reading)}),
    }  # fmt: skip
    assert set(values) == set(TYPES)
    kind = data.draw(st.sampled_from(sorted(values)))
    assert _called(kind, data.draw(values[kind])) == []
