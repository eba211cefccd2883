"""finish_reason_of_calls: on releases without and with the parser engine, and several choices in one stream."""

from __future__ import annotations

import pytest

from engine_overlay.patches.tools import finish_reason_of_calls as patch
from tests.patches import alone

test_a_case_needs_it = alone.needed(
    "finish_reason_of_calls",
    ("vllm-0.32.0", "230"),
    ("vllm-0.24.0", "231"),
    ("vllm-0.21.0", "230"),
    ("aphrodite_engine-0.24.1", "230"),
)
test_it_comes_and_goes = alone.probed(
    "finish_reason_of_calls", "vllm-0.18.0", "vllm-0.23.0", "vllm-0.28.0", "vllm-0.32.0", "aphrodite_engine-0.24.1"
)


def chunk(index: int, finish: str | None = None, text: str = "") -> str:
    reason = f'"{finish}"' if finish else "null"
    return f'data: {{"choices":[{{"index":{index},"delta":{{"content":"{text}"}},"finish_reason":{reason}}}]}}\n\n'


@pytest.mark.parametrize(
    ("engines_own", "called", "said"),
    [
        ("stop", True, "tool_calls"),
        (None, True, "tool_calls"),
        ("length", True, "length"),
        ("abort", True, "abort"),
        ("stop", False, "stop"),
        ("length", False, "length"),
        (None, False, "stop"),
    ],
)
def test_the_reason_of_each_choice_is_its_own(engines_own, called, said):
    reasons = {0: "stop", 1: engines_own} if engines_own else {0: "stop"}
    assert patch._corrected(chunk(1, "tool_calls"), {0, 1} if called else {0}, reasons) == chunk(1, said)


def test_words_of_the_model_are_not_read_as_json():
    quoted = chunk(0, None, r"\"finish_reason\":\"tool_calls\" \"tool_calls\":[{")
    assert patch._SAYS not in quoted and patch._CALLS not in quoted
