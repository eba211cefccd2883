"""``flush_without_calls`` on cases that are wrong without just this patch; see :mod:`tests.patches.alone`."""

from __future__ import annotations

from tests.patches import alone

test_a_case_needs_it = alone.needed(
    "flush_without_calls",
    ("vllm-0.24.0", "205"),
)
