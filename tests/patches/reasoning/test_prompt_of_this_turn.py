"""``prompt_of_this_turn`` on cases that are wrong without just this patch; see :mod:`tests.patches.alone`."""

from __future__ import annotations

from tests.patches import alone

test_a_case_needs_it = alone.needed(
    "prompt_of_this_turn",
    ("vllm-0.33.0", "090"),
)
