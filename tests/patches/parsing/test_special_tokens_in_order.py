"""``special_tokens_in_order``: its fault without it, with it and undone; see :mod:`tests.patches.alone`."""

from __future__ import annotations

from tests.patches import alone

test_it_comes_and_goes = alone.probed(
    "special_tokens_in_order", "vllm-0.24.0", "vllm-0.33.0", "aphrodite_engine-0.24.1"
)
