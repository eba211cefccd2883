"""``text_behind_calls`` on cases that are wrong without just this patch; see :mod:`tests.patches.alone`."""

from __future__ import annotations

from tests.patches import alone

test_a_case_needs_it = alone.needed(
    "text_behind_calls",
    ("vllm-0.24.0", "208"),
    ("vllm-0.33.0", "208"),
    ("aphrodite_engine-0.24.1", "208"),
)
