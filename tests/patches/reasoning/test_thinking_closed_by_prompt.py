"""``thinking_closed_by_prompt`` on cases that are wrong without just this patch; see :mod:`tests.patches.alone`."""

from __future__ import annotations

from tests.patches import alone

test_a_case_needs_it = alone.needed(
    "thinking_closed_by_prompt",
    ("vllm-0.32.0", "051"),
    ("aphrodite_engine-0.24.1", "051"),
)
