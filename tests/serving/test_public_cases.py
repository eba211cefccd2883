"""Every public case of the own parser's formats over HTTP; the other releases by hand, see public_cases."""

from __future__ import annotations

import pytest

from tests.serving import public_cases

pytestmark = pytest.mark.engine


@pytest.mark.parametrize("label", ["vllm-0.18.1", "vllm-0.22.1", "aphrodite_engine-0.21.0"])
def test_every_case_is_right_streaming_and_full(label: str) -> None:
    seen = public_cases.ask(label)
    assert len(seen) >= 76
    assert {case: ways for case, ways in seen.items() if any(ways.values())} == {}
