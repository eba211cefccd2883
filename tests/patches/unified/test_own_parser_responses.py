"""Responses on every release without a parser engine: the deltas of the stream, and the items of the response."""

from __future__ import annotations

import pytest

from tests.patches.unified.releases import WITHOUT, seen
from tests.patches.unified.scenarios import SCENARIOS, asked_of

pytestmark = pytest.mark.engine

ALL = pytest.mark.parametrize("label", WITHOUT)
ASKED = [scenario for scenario in SCENARIOS if scenario.responses]


@ALL
@pytest.mark.parametrize("mode", ["stream", "full"])
def test_every_answer_is_right(label: str, mode: str) -> None:
    wrong = {}
    for scenario in asked_of(label, ASKED):
        found = seen(label)["answers"][scenario.name]["responses"][mode]
        want = {key: scenario.want[0][key] for key in ("reasoning", "content", "calls")}
        if {key: found.get(key) for key in want} != want:
            wrong[scenario.name] = found
    assert wrong == {}


@ALL
def test_reasoning_tokens_are_those_before_the_end(label: str) -> None:
    # "I", " see", "." and then the marker, spelled or whole.
    for name in ("qwen3_engine spelled by 1", "stock qwen3_xml spelled by 1", "stock qwen3_xml whole by 1"):
        assert seen(label)["answers"][name]["responses"]["full"]["reasoning_tokens"] == 3, name
