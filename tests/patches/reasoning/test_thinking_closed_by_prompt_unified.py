"""A case that is wrong without just ``thinking_closed_by_prompt_unified``; see :mod:`tests.patches.alone`."""

from __future__ import annotations

from tests.patches import alone

test_a_case_needs_it = alone.needed(
    "thinking_closed_by_prompt_unified",
    ("vllm-0.28.0", "051"),
)
