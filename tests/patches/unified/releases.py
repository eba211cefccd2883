"""The runs of tests.patches.unified.on_engine that the tests look at, one for each release."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

from engine_overlay.verify import releases
from tests.matrix import environment

WITHOUT = tuple(
    release.label
    for release in releases.pinned()
    # A patch release that differs in none of the functions is run by the matrix only.
    if not release.has_parser_engine and release.label not in ("vllm-0.18.0", "vllm-0.20.1", "vllm-0.22.0")
)
"""Releases that have no parser engine."""

WITH = ("vllm-0.24.0", "vllm-0.28.0", "vllm-0.33.0", "aphrodite_engine-0.22.0", "aphrodite_engine-0.24.1")
"""Some of those that have one; all have the same parser managers."""


@cache
def seen(label: str, overlay: bool = True, without: str = "") -> dict[str, Any]:
    """What the release gives; with ``overlay`` off, or ``without`` a patch, it fails or shows the names only."""
    out = releases.cache() / "results" / f"unified-{label}-{overlay}-{without}.json"
    out.parent.mkdir(parents=True, exist_ok=True)
    parts = ["names"] if label in WITH or without else ["answers", "names"]
    more = {"ENGINE_OVERLAY_DISABLE": without} if without else None
    command = ["-m", "tests.patches.unified.on_engine", str(out), *parts]
    environment.run(command, releases.fetch(releases.named(label)), overlay=overlay, more=more, check=True)
    return json.loads(out.read_text(encoding="utf-8"))
