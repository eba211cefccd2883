"""``tool_half_serving`` by its probe, on releases; see :mod:`tests.patches.alone`."""

from __future__ import annotations

from tests.patches import alone

test_the_fault_comes_and_goes_with_it = alone.probed("tool_half_serving", "vllm-0.33.0")
