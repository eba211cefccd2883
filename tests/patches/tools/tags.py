"""Runs of :mod:`tests.patches.tools.tags_on_engine`, one for each release, which three test files share."""

from __future__ import annotations

import json
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from engine_overlay.verify import releases
from tests.matrix import environment

EVERY = pytest.mark.parametrize(
    "label",
    [
        "vllm-0.24.0",
        "vllm-0.27.1",
        "vllm-0.28.0",
        "vllm-0.30.0",
        "vllm-0.33.0",
        "aphrodite_engine-0.22.0",
        "aphrodite_engine-0.24.1",
    ],
)


@cache
def seen(label: str) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "seen.json"
        command = ["-m", "tests.patches.tools.tags_on_engine", str(out)]
        environment.run(command, releases.fetch(releases.named(label)), overlay=True, check=True)
        return json.loads(out.read_text(encoding="utf-8"))


def wrong(found: dict[str, Any], parser: str) -> dict[str, Any]:
    """The wrong answers of one tool parser."""
    return {case: what for case, what in found["wrong"].items() if f" {parser} " in f" {case} "}
