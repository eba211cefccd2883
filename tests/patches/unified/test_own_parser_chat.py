"""Chat completions on every release without a parser engine, asked in many ways: what the client puts together."""

from __future__ import annotations

import pytest

from tests.patches import alone
from tests.patches.unified.releases import WITHOUT, seen
from tests.patches.unified.scenarios import SCENARIOS, asked_of

pytestmark = pytest.mark.engine

ALL = pytest.mark.parametrize("label", WITHOUT)


@ALL
@pytest.mark.parametrize("mode", ["stream", "full"])
def test_every_answer_is_right(label: str, mode: str) -> None:
    wrong = {}
    for scenario in asked_of(label, SCENARIOS):
        found = seen(label)["answers"][scenario.name]["chat"][mode]
        if not isinstance(found, list) or len(found) != len(scenario.want):
            wrong[scenario.name] = found
            continue
        for want, answer in zip(scenario.want, found, strict=True):
            if {key: answer[key] for key in want} != want:
                wrong[scenario.name] = answer
    assert wrong == {}


@ALL
def test_no_answer_says_tool_calls_without_one(label: str) -> None:
    for name, modes in seen(label)["answers"].items():
        for mode, answers in modes["chat"].items():
            assert all(answer["calls"] for answer in answers if answer["finish"] == "tool_calls"), (name, mode)


@ALL
def test_each_call_has_an_id(label: str) -> None:
    for name, modes in seen(label)["answers"].items():
        for mode, answers in modes["chat"].items():
            for answer in answers:
                assert len(answer["ids"]) == len(set(answer["ids"])) or "kimi" in name, (name, mode)
                assert all(answer["ids"]), (name, mode)


@ALL
def test_parsers_of_a_user_stay(label: str) -> None:
    assert seen(label)["kept"]["class"] == "kept.<locals>.Mine"
    (answer,) = seen(label)["kept"]["full"]
    assert (answer["reasoning"], answer["content"]) == ("mine", "I see.</think>\n\nFour.")


test_a_case_needs_it = alone.needed(
    "own_parser_chat",
    ("vllm-0.18.1", "003"),
    ("vllm-0.22.1", "018"),
    ("aphrodite_engine-0.21.0", "057"),
)
