"""``text_behind_reasoning`` on cases that are wrong without just this patch; see :mod:`tests.patches.alone`."""

from __future__ import annotations

from tests.patches import alone

test_a_case_needs_it = alone.needed(
    "text_behind_reasoning",
    ("vllm-0.31.0", "203"),
    ("aphrodite_engine-0.24.1", "203"),
)
