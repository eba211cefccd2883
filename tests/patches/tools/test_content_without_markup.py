"""``content_without_markup`` on cases that are wrong without just this patch; see :mod:`tests.patches.alone`."""

from __future__ import annotations

from tests.patches import alone

test_a_case_needs_it = alone.needed(
    "content_without_markup",
    ("vllm-0.24.0", "057"),
    ("vllm-0.29.0", "040"),
)
