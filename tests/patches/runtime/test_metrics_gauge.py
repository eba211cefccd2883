"""The overlay's own metrics and its lines in bug reports, on the first and the last release of both engines."""

from __future__ import annotations

import functools
import json
from typing import Any

import pytest

import engine_overlay
from engine_overlay.verify import releases
from tests.matrix import environment

RELEASES = ("vllm-0.18.0", "vllm-0.33.0", "aphrodite_engine-0.20.0", "aphrodite_engine-0.24.1")

pytestmark = [pytest.mark.engine, pytest.mark.parametrize("label", RELEASES)]


@functools.cache
def said(label: str, folder: str | None = None) -> dict[str, Any]:
    more = {"PROMETHEUS_MULTIPROC_DIR": folder} if folder else {}
    sources = releases.fetch(releases.named(label))
    done = environment.run(["-m", "tests.patches.runtime.said"], sources, overlay=True, more=more, check=True)
    return json.loads(done.stdout.strip().splitlines()[-1])


def test_a_scrape_names_the_overlay_and_each_patch(label):
    seen = said(label)["on"]
    release = releases.named(label)
    info = f'engine="{release.engine}",engine_version="{release.version}",version="{engine_overlay.__version__}"'
    assert f"engine_overlay_info{{{info}}} 1.0" in seen["metrics"]
    assert 'engine_overlay_patch{patch="metrics_gauge",path="called",state="applied"} 1.0' in seen["metrics"]
    # Modules that this process has not imported: in a server they are, see the status of one.
    assert any('state="staged"' in line and line.endswith(" 0.0") for line in seen["metrics"])


def test_the_engines_own_metrics_stay_and_undo_takes_ours_away(label):
    seen = said(label)
    assert seen["on"]["others"] == seen["undone"]["others"] > 0
    assert seen["undone"]["metrics"] == []
    assert len(seen["redone"]["metrics"]) == len(seen["on"]["metrics"])


def test_several_servers_behind_one_address(label, tmp_path):
    seen = said(label, str(tmp_path))
    assert any(line.startswith("engine_overlay_info{") for line in seen["on"]["metrics"])
    assert seen["undone"]["metrics"] == []


def test_a_bug_report_says_that_the_overlay_is_in(label):
    seen = said(label)
    assert seen["undone"]["report"] == ["the engine's own text"]
    text = "\n".join(seen["on"]["report"])
    assert text.startswith("the engine's own text\n") and seen["redone"]["report"] == seen["on"]["report"]
    assert f"engine-overlay version       : {engine_overlay.__version__} (way in: startup)" in text
    assert "metrics_gauge" in text and "ENGINE_OVERLAY=off before reporting" in text
