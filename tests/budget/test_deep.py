"""Structured output and thinking budgets on the engines' own core over HTTP, overlay off and on; see
:mod:`tests.budget.one`.
"""

from __future__ import annotations

from typing import Any

import pytest

from engine_overlay.verify import releases
from tests.budget import one, requests

Results = dict[str, dict[str, Any]]

pytestmark = pytest.mark.engine
ALL = pytest.mark.parametrize("label", one.LABELS)
OURS = ("budget_behind_end", "grammar_behind_spelled_end")


@pytest.fixture(scope="module")
def results() -> Results:
    return one.results(one.LABELS)


@ALL
def test_every_answer_is_right_with_the_overlay(label: str, results: Results) -> None:
    found = results[label]["on"]
    assert len(found["answers"]) == len(list(requests.all_requests(releases.named(label))))
    assert found["wrong"] == {}


@ALL
def test_the_stock_engine_gets_the_faults_wrong(label: str, results: Results) -> None:
    faults = {request.name for request in requests.all_requests(releases.named(label)) if request.fault}
    right = faults - set(results[label]["off"]["wrong"])
    # In the processor of old releases the forced end can fall between the tags of a call.
    assert right <= {"budget implicit stream", "budget implicit full"}
    assert not right or label == "vllm-0.20.2"


@ALL
def test_the_patches_are_in(label: str, results: Results) -> None:
    found = results[label]["on"]
    assert found["problems"] == []
    ours = {i: state for i, (verdict, state) in found["patches"].items() if i.startswith(OURS) and verdict == "apply"}
    assert "grammar_behind_spelled_end" in ours or "grammar_behind_spelled_end_accept" in ours
    # The V2 model runner needs a device.
    assert set(ours.items()) <= {(i, "applied") for i in ours} | {("budget_behind_end_rows", "staged")}
