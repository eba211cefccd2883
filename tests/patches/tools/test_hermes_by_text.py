"""``hermes_by_text`` by its probe, on releases; see :mod:`tests.patches.alone`."""

from __future__ import annotations

from tests.patches import alone

test_the_fault_comes_and_goes_with_it = alone.probed("hermes_by_text", "vllm-0.33.0")
