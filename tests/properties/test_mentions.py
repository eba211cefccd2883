"""At least 300 answers that only talk about tags come through whole, streaming and full."""

from __future__ import annotations

import json

import pytest

from engine_overlay.verify import releases
from tests.matrix import environment

pytestmark = pytest.mark.engine


def found(label, folder, *, overlay):
    out = folder / f"{label}-{overlay}.json"
    command = ["-m", "tests.properties.mentions", str(out)]
    environment.run(command, releases.fetch(releases.named(label)), overlay=overlay, check=True)
    return json.loads(out.read_text(encoding="utf-8"))


@pytest.mark.parametrize("label", ["vllm-0.28.0", "vllm-0.33.0", "aphrodite_engine-0.24.1"])
def test_nothing_is_lost_of_an_answer_that_talks_about_tags(label, tmp_path):
    got = found(label, tmp_path, overlay=True)
    assert got["answers"] >= 300
    assert got["wrong"] == []


def test_without_the_overlay_many_lose_text(tmp_path):
    got = found("vllm-0.33.0", tmp_path, overlay=False)
    assert len(got["wrong"]) > 50
