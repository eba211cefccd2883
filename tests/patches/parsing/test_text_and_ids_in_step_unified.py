"""``text_and_ids_in_step_unified`` on cases that are wrong without just this patch; see :mod:`tests.patches.alone`."""

from __future__ import annotations

from tests.patches import alone

test_a_case_needs_it = alone.needed(
    "text_and_ids_in_step_unified",
    ("vllm-0.28.0", "204"),
)
