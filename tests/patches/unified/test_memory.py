"""An answer leaves nothing behind: its objects go with the last reference to it, without the cycle collector."""

from __future__ import annotations

import pytest

from engine_overlay.verify import releases
from tests.patches import releases_of

pytestmark = pytest.mark.engine

LABELS = ("vllm-0.21.0", "vllm-0.33.0")
BY_THE_ENGINE = {("vllm-0.33.0", "deepseek_v4 deepseek_v4")}
"""Where the engine's own parser refers to itself, also without the overlay."""


@pytest.mark.parametrize("label", LABELS)
def test_no_answer_leaves_objects(label: str) -> None:
    found = releases_of.run([releases.named(label)], "tests.patches.unified.memory")[label]
    counted = {pair: left for pair, left in found.items() if isinstance(left, dict)}
    assert len(counted) >= 12
    growing = {pair: left for pair, left in counted.items() if max(left.values()) > 0.5}
    assert not {pair: left for pair, left in growing.items() if (label, pair) not in BY_THE_ENGINE}
