"""Each patch of the parsing releases by itself: a case that is wrong without just this one, and right with it."""

from __future__ import annotations

import json
import subprocess
from functools import cache
from typing import Any

import pytest

from engine_overlay.verify import releases
from tests.matrix import environment

pytestmark = pytest.mark.engine

NEEDED = [
    ("full_with_token_ids", "vllm-0.33.0", "024"),
    ("content_token_ids", "vllm-0.33.0", "201"),
    ("special_tokens_in_order", "vllm-0.33.0", "202"),
    ("text_behind_reasoning", "vllm-0.31.0", "203"),
    ("text_behind_reasoning", "aphrodite_engine-0.24.1", "203"),
    ("text_and_ids_in_step_unified", "vllm-0.28.0", "204"),
    ("prompt_of_this_turn", "vllm-0.33.0", "090"),
    ("thinking_closed_by_prompt", "vllm-0.32.0", "051"),
    ("thinking_closed_by_prompt", "aphrodite_engine-0.24.1", "051"),
    ("thinking_closed_by_prompt_unified", "vllm-0.28.0", "051"),
    ("flush_without_calls", "vllm-0.24.0", "205"),
    ("content_without_markup", "vllm-0.24.0", "057"),
    ("content_without_markup", "vllm-0.29.0", "040"),
    ("step3_whole_calls", "vllm-0.33.0", "096"),
    ("argument_stream", "vllm-0.33.0", "018"),
    ("text_behind_calls", "vllm-0.24.0", "208"),
    ("text_behind_calls", "vllm-0.33.0", "208"),
    ("text_behind_calls", "aphrodite_engine-0.24.1", "208"),
    ("spelled_markers", "vllm-0.33.0", "003"),
    ("spelled_markers", "vllm-0.33.0", "206"),
    ("spelled_markers", "vllm-0.33.0", "207"),
    ("own_parser_chat", "vllm-0.18.1", "003"),
    ("own_parser_chat", "vllm-0.22.1", "018"),
    ("own_parser_chat", "aphrodite_engine-0.21.0", "057"),
    ("own_parser", "vllm-0.23.0", "003"),
]
CASES = sorted({case for _, _, case in NEEDED})


@cache
def seen(label: str, without: str | None) -> dict[str, Any]:
    release = releases.named(label)
    out = releases.cache() / "results" / f"needed-{label}-{without}.json"
    out.parent.mkdir(parents=True, exist_ok=True)
    more = {"ENGINE_OVERLAY_DISABLE": without} if without else {}
    cases = sorted({case for patch, at, case in NEEDED if at == label and without in (None, patch)})
    subprocess.run(
        [str(environment.python()), "-m", "tests.patches.needed", str(out), *cases],
        cwd=environment.ROOT,
        env=environment.variables(releases.fetch(release), overlay=True, more=more),
        check=True,
    )
    return json.loads(out.read_text(encoding="utf-8"))


@pytest.mark.parametrize(("patch", "label", "case"), NEEDED)
def test_the_case_is_wrong_without_this_patch_and_right_with_it(patch, label, case):
    without, with_it = seen(label, patch), seen(label, None)
    assert without["states"][patch] == "" and with_it["states"][patch] == "applied"
    (off,) = (ways for case_id, ways in without["wrong"].items() if case_id.startswith(case))
    (on,) = (ways for case_id, ways in with_it["wrong"].items() if case_id.startswith(case))
    assert off and not on
