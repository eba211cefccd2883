"""``content_token_ids`` on cases that are wrong without just this patch; see :mod:`tests.patches.alone`."""

from __future__ import annotations

from tests.patches import alone

test_a_case_needs_it = alone.needed(
    "content_token_ids",
    ("vllm-0.33.0", "201"),
)
