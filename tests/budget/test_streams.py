"""A budget never forces an end behind an end, and always forces one when there was none by then: made-up answers
through every keeper of budgets that an engine release has.
"""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import pytest

from engine_overlay.verify import releases
from tests.matrix import environment

pytestmark = pytest.mark.engine

KEEPERS = {
    "vllm-0.19.1": {"processor"},
    "vllm-0.20.2": {"processor"},
    "vllm-0.21.0": {"holder"},
    "vllm-0.25.1": {"holder"},
    "vllm-0.28.0": {"holder", "rows"},
    "vllm-0.33.0": {"holder", "rows"},
    "aphrodite_engine-0.20.0": {"processor"},
    "aphrodite_engine-0.21.0": {"holder"},
    "aphrodite_engine-0.24.1": {"holder", "rows"},
}
EXAMPLES = 400


@cache
def seen(label: str) -> dict[str, Any]:
    out = releases.cache() / "results" / f"budget-streams-{label}.json"
    out.parent.mkdir(parents=True, exist_ok=True)
    out.unlink(missing_ok=True)
    sources = releases.fetch(releases.named(label))
    command = ["-m", "tests.budget.streams", str(out), str(EXAMPLES)]
    environment.run(command, sources, overlay=True, check=True)
    return json.loads(out.read_text(encoding="utf-8"))


@pytest.mark.parametrize("label", KEEPERS)
def test_no_answer_has_a_fault(label: str) -> None:
    assert seen(label).keys() == KEEPERS[label]
    for keeper, found in seen(label).items():
        assert found["on"]["tried"] == EXAMPLES, keeper
        assert found["on"]["faults"] == {}, keeper


@pytest.mark.parametrize("label", KEEPERS)
def test_the_stock_engine_forces_an_end_behind_an_end(label: str) -> None:
    for keeper, found in seen(label).items():
        assert found["left"] == [], keeper
        assert {"forced again", "forced behind the end"} & set(found["off"]["faults"]), keeper
