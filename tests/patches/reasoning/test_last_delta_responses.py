"""``last_delta_responses`` by its probe, on releases; see :mod:`tests.patches.alone`."""

from __future__ import annotations

from tests.patches import alone

test_the_fault_comes_and_goes_with_it = alone.probed(
    "last_delta_responses",
    "vllm-0.18.0",
    "vllm-0.22.1",
    "aphrodite_engine-0.21.0",
)
