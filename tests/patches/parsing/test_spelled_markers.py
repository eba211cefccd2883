"""spelled_markers: the record and the refusal without an engine, and tokenisation invariance on real engines."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import pytest

from engine_overlay.patches.parsing import spelled_markers
from engine_overlay.verify import releases
from tests.matrix import environment
from tests.patches import alone
from tests.patches.reasoning.gate import ask

RELEASES = (
    "vllm-0.24.0",
    "vllm-0.27.1",
    "vllm-0.28.0",
    "vllm-0.33.0",
    "aphrodite_engine-0.22.0",
    "aphrodite_engine-0.24.1",
)
"""Where a body of a target changes; the matrix runs the probe and the public cases on every release."""


def test_a_changed_body_is_refused(tmp_path):
    stub = "class StreamingParserEngine:\n    def _process_lex_tokens(self, tokens):\n        return []\n"
    v = ask(tmp_path, spelled_markers, "0.33.0", {"parser.engine.streaming_parser_engine": stub})
    assert v.code == "drifted"
    assert v.reason.startswith("body of StreamingParserEngine._process_lex_tokens is unknown (")


@cache
def seen(label: str, *, overlay: bool) -> dict[str, Any]:
    out = releases.cache() / "results" / f"spelled-{label}-{'on' if overlay else 'off'}.json"
    out.parent.mkdir(parents=True, exist_ok=True)
    command = ["-m", "tests.patches.parsing.spelled", str(out)]
    environment.run(command, releases.fetch(releases.named(label)), overlay=overlay, check=True)
    return json.loads(out.read_text(encoding="utf-8"))


@pytest.mark.engine
@pytest.mark.parametrize("label", RELEASES)
def test_spelling_the_markers_of_a_healthy_answer_changes_nothing(label):
    got = seen(label, overlay=True)
    assert got["states"]["spelled_markers"] == "applied"
    assert len(got["healthy"]) >= 17
    assert got["wrong"] == {}


@pytest.mark.engine
def test_without_the_patch_most_of_these_streams_are_wrong():
    got = seen("vllm-0.33.0", overlay=False)
    assert got["states"] == {}
    assert len(got["wrong"]) > 300


test_a_case_needs_it = alone.needed(
    "spelled_markers",
    ("vllm-0.33.0", "003"),
    ("vllm-0.33.0", "206"),
    ("vllm-0.33.0", "207"),
)
