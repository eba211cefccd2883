"""The patches on real engines: every format and every registered reasoning parser, with them and without.

The matrix runs each patch's probe on every release; the releases here are those in which what the patches
rely on changed.
"""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import pytest

from engine_overlay.verify import releases
from tests.matrix import environment

pytestmark = pytest.mark.engine

RELEASES = (
    "vllm-0.18.1",
    "vllm-0.19.1",
    "vllm-0.20.2",
    "vllm-0.24.0",
    "vllm-0.25.1",
    "vllm-0.28.0",
    "vllm-0.33.0",
    "aphrodite_engine-0.20.0",
    "aphrodite_engine-0.22.0",
    "aphrodite_engine-0.24.1",
)
WITH_ENGINE = tuple(label for label in RELEASES if releases.named(label).has_parser_engine)
WITH_BUDGET = tuple(label for label in RELEASES if label != "vllm-0.18.1")

THINK = ["<think>", "</think>"]
MADE = {
    "deepseek_v3": THINK,
    "deepseek_v4": THINK,
    "granite": ["Here is my thought process:", "Here is my response:"],
    "minimax_m2_append_think": THINK,
    "muse": [" to=self<|message|>", "<|eom|>"],
    "muse_glimmer": [" to=self<|message|>", "<|eom|>"],
    "musespark1x": [" to=self<|message|>", "<|eom|>"],
    "openai_gptoss": ["<|channel|>analysis<|message|>", "<|end|>"],
    "poolside_v1": THINK,
}
"""What is answered now by parsers that answered None, from vllm 0.20 and aphrodite 0.20 on."""


@cache
def seen(label: str) -> dict[str, Any]:
    out = releases.cache() / "results" / f"reasoning-{label}.json"
    out.parent.mkdir(parents=True, exist_ok=True)
    sources = releases.fetch(releases.named(label))
    command = ["-m", "tests.patches.reasoning.on_engine", str(out)]
    environment.run(command, sources, overlay=True, check=True)
    return json.loads(out.read_text(encoding="utf-8"))


@pytest.mark.parametrize("label", WITH_ENGINE)
def test_adapters_answer_as_before_and_the_bare_parser_as_they_do(label: str) -> None:
    on, off = seen(label)["on"]["stages"], seen(label)["off"]["stages"]
    assert on.keys() == off.keys()
    assert len({key.split()[0] for key in on}) >= 5
    for key, answer in on.items():
        assert answer["adapter"] == off[key]["adapter"], key
        assert answer["bare"] == answer["adapter"], key
        assert answer["mode"] is False, key
        assert answer["single"] == off[key]["single"], key


@pytest.mark.parametrize("label", WITH_ENGINE)
def test_the_two_stages_together_give_the_calls(label: str) -> None:
    on, off = seen(label)["on"]["stages"], seen(label)["off"]["stages"]
    expected = ["get_weather", {"city": "Ulm", "days": 3}]
    for key, answer in on.items():
        what, choice = key.split()[1:]
        if choice == "none" or what in ("plain", "open"):
            assert answer["second"] == [], key
            continue
        if what == "cut":
            assert answer["second"] == answer["single"], key
            continue
        assert answer["second"] == [expected] * (2 if what == "two" else 1), key
        assert off[key]["second"] == [], f"{key}: the fault is not there without the patch"


@pytest.mark.parametrize("label", WITH_BUDGET)
def test_every_parser_with_markers_tells_them_and_those_that_did_are_unchanged(label: str) -> None:
    on, off = seen(label)["on"]["strings"], seen(label)["off"]["strings"]
    assert on.keys() == off.keys()
    for name, before in off.items():
        if None not in before:
            assert on[name] == before, name
        elif name in ("hunyuan_a13b", "identity"):
            assert on[name] == [None, None], name
        elif label.startswith("vllm-0.19."):
            assert on[name] == MADE.get(name, on[name]), name
            assert None not in on[name], name
        else:
            assert on[name] == MADE[name], name
    assert None in off["deepseek_v3"] and None in off["granite"]


@pytest.mark.parametrize("label", WITH_BUDGET)
def test_the_config_of_a_user_who_gave_none_has_tokens_for_exactly_those(label: str) -> None:
    on, off = seen(label)["on"], seen(label)["off"]
    for name, pair in on["strings"].items():
        assert (on["configs"][name] is not None) is (None not in pair), name
        if off["configs"][name] is not None:
            assert on["configs"][name] == off["configs"][name], name
    assert off["configs"]["deepseek_v3"] is None
    assert [len(ids) for ids in on["configs"]["deepseek_v3"]] == [1, 1]


def test_a_release_without_the_budget_is_left_alone() -> None:
    assert seen("vllm-0.18.1")["on"] == seen("vllm-0.18.1")["off"]
