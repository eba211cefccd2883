"""Where nobody imports the parser engine, the patches that do not touch it go in all the same."""

from __future__ import annotations

import json

import pytest

from engine_overlay.verify import releases
from tests.matrix import environment

HERE = (
    "finish_reason_of_calls",
    "hermes_by_text",
    "reasoning_handoff",
    "text_and_ids_in_step",
    "thinking_closed_by_prompt",
    "tool_half_serving",
)


@pytest.mark.engine
@pytest.mark.parametrize("label", ["vllm-0.24.0", "vllm-0.32.0", "aphrodite_engine-0.24.1"])
def test_they_do_not_wait_for_it(label: str) -> None:
    done = environment.run(
        ["-m", "tests.patches.legacy_parsers"], releases.fetch(releases.named(label)), overlay=True, check=True
    )
    states = json.loads(done.stdout.strip().splitlines()[-1])
    assert {patch: states[patch] for patch in HERE} == dict.fromkeys(HERE, "applied")
    assert states["spelled_markers"] == "staged"
