"""``effective_values`` by its probe, on releases; see :mod:`tests.patches.alone`."""

from __future__ import annotations

from tests.patches import alone

test_the_fault_comes_and_goes_with_it = alone.probed(
    "effective_values",
    "vllm-0.18.0",
    "vllm-0.33.0",
    "aphrodite_engine-0.24.1",
)
