"""text_and_ids_in_step: refusal without an engine, and healthy cases at every hold-back on real engines."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import pytest

from engine_overlay.patches.parsing import text_and_ids_in_step
from engine_overlay.verify import releases
from tests.matrix import environment
from tests.patches.reasoning.gate import ask

RELEASES = ("vllm-0.24.0", "vllm-0.28.0", "vllm-0.33.0", "aphrodite_engine-0.24.1")


def test_a_changed_body_is_refused(tmp_path):
    stub = "class DelegatingParser:\n    def parse_delta(self, text, ids):\n        return None\n"
    v = ask(tmp_path, text_and_ids_in_step, "0.33.0", {"parser.abstract_parser": stub})
    assert v.code == "drifted" and v.reason.startswith("body of DelegatingParser.parse_delta is unknown (")


@cache
def seen(label: str, *, overlay: bool) -> dict[str, Any]:
    out = releases.cache() / "results" / f"lagging-{label}-{'on' if overlay else 'off'}.json"
    out.parent.mkdir(parents=True, exist_ok=True)
    command = ["-m", "tests.patches.parsing.lagging", str(out)]
    environment.run(command, releases.fetch(releases.named(label)), overlay=overlay, check=True)
    return json.loads(out.read_text(encoding="utf-8"))


@pytest.mark.engine
@pytest.mark.parametrize("label", RELEASES)
def test_holding_the_text_back_changes_nothing(label):
    got = seen(label, overlay=True)
    assert got["states"]["text_and_ids_in_step"] == "applied"
    assert got["unhealthy"] == []
    assert got["streams"] == 16 * 17 * 7
    assert got["wrong"] == {}
    print(f"{label}: 0 of {got['streams']} held back streams wrong")


@pytest.mark.engine
def test_without_the_patch_many_of_these_streams_are_wrong():
    got = seen("vllm-0.33.0", overlay=False)
    assert got["states"] == {}
    assert len(got["wrong"]) > 300
