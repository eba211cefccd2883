"""Tests of the engines that are not run, each with the reason; the same with the overlay off and on."""

from __future__ import annotations

DESELECTED: dict[str, dict[str, str]] = {
    "vllm-0.33.0": {},
    "vllm-0.24.0": {},
}
"""Release label -> {start of a node id: reason}."""
