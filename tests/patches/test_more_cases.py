"""The cases of tests/patches/cases on the releases where what reads them changed: streaming in every cut, and full."""

from __future__ import annotations

import pytest

from engine_overlay.verify import cases as public
from tests.patches import alone, needed

RELEASES = (
    "vllm-0.18.0",
    "vllm-0.21.0",
    "vllm-0.23.0",
    "vllm-0.24.0",
    "vllm-0.27.1",
    "vllm-0.28.0",
    "vllm-0.33.0",
    "aphrodite_engine-0.20.0",
    "aphrodite_engine-0.22.0",
    "aphrodite_engine-0.24.1",
)
CASES = [case["id"] for case in public.load(needed.FOLDER)]
for release in RELEASES:
    alone.ask(release, *CASES)
LEFT_ALONE = {
    # Its parser for MiniMax M2 does not know the tags of single arguments, so neither does the grammar.
    ("vllm-0.24.0", "228-minimax-invoke-not-closed"),
    ("vllm-0.24.0", "229-minimax-example-in-value"),
}


@pytest.mark.engine
@pytest.mark.parametrize("label", RELEASES)
def test_every_case_is_right(label: str) -> None:
    wrong = alone.wrong(label, *CASES)
    assert set(wrong) == set(CASES)
    assert {case: ways for case, ways in wrong.items() if ways and (label, case) not in LEFT_ALONE} == {}
