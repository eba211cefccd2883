"""The rl profile on every release: its values where the user gave none, the user's where there are some."""

from __future__ import annotations

from typing import Any

import pytest

from engine_overlay.verify import releases
from engine_overlay.verify.releases import Release
from tests.matrix import spread
from tests.patches import releases_of
from tests.patches.runtime.on_engine import GIVEN
from tests.serving import one as serving

pytestmark = pytest.mark.engine

Seen = dict[str, dict[str, Any]]

ALL = pytest.mark.parametrize("release", releases.pinned(), ids=lambda release: release.label)
PROFILE = {
    "logprobs_mode": "processed_logprobs",
    "enable_prefix_caching": False,
    "async_scheduling": False,
    "cascade_attention": False,
    "lm_head_dtype": "float32",
}
STOCK = {
    "logprobs_mode": "raw_logprobs",
    "enable_prefix_caching": True,
    "cascade_attention": False,
    "lm_head_dtype": "bfloat16",
}
NO_CASCADE = {"vllm-0.32.0": None, "vllm-0.33.0": None}
"""Releases without cascade attention: the argument has no default any more and is ignored."""
WAYS = {"EngineArgs", "AsyncEngineArgs", "a later dataclass", "LLM", "serve", "serve --config", "api_server"}


@pytest.fixture(scope="module")
def results() -> Seen:
    model = str(serving.model_folder())
    return releases_of.run(
        spread.chosen(),
        "tests.patches.runtime.on_engine",
        [model],
        {"ENGINE_OVERLAY_PROFILE": "rl", "ENGINE_OVERLAY_LOG": "info"},
    )


def wanted(release: Release, name: str) -> dict[str, Any]:
    """The values that must come of what the user gave in the case ``name``."""
    given = GIVEN[name]
    head = given.get("hf_overrides", {}).get("head_dtype", "float32")
    return PROFILE | {
        "logprobs_mode": given.get("logprobs_mode", PROFILE["logprobs_mode"]),
        "enable_prefix_caching": given.get("enable_prefix_caching", False),
        "lm_head_dtype": "bfloat16" if head == "model" else head,
    }


@ALL
def test_every_way_to_start_was_driven(release: Release, results: Seen) -> None:
    ways = WAYS | ({"run"} if release.engine == "aphrodite" else set())
    assert {name.partition(":")[0] for name in results[release.label]["on"]} == ways
    assert len(results[release.label]["on"]) == len(ways) * len(GIVEN)


@ALL
def test_the_parts_are_in(release: Release, results: Seen) -> None:
    found = results[release.label]
    states = found["states"]
    parts = {"processed_logprobs", "prefix_caching_off", "async_scheduling_off", "effective_values"}
    assert {i: states[i] for i in parts} == dict.fromkeys(parts, ["apply", "applied"])
    heads = [states["fp32_head"][0], states["fp32_head_native"][0]]
    assert sorted(heads) == ["apply", "native"]
    assert found["problems"] == found["left"] == []


@ALL
def test_the_users_values_win_and_the_profiles_hold_elsewhere(release: Release, results: Seen) -> None:
    wrong = []
    for case, found in results[release.label]["on"].items():
        way, _, name = case.partition(": ")
        values, expected = found["values"], wanted(release, name)
        given = GIVEN[name]
        # The CPU platform has neither asynchronous scheduling nor cascade attention, whatever it is told: it is the
        # argument that shows what other platforms are told.
        pairs = [(values[key], expected[key], key) for key in expected]
        pairs += [(found["async_scheduling"], given.get("async_scheduling", False), "the argument async_scheduling")]
        cascade = given.get("disable_cascade_attn", NO_CASCADE.get(release.label, True))
        pairs += [(found["disable_cascade_attn"], cascade, "the argument disable_cascade_attn")]
        override = given.get("hf_overrides", {}).get("initializer_range", found["initializer_range"])
        pairs += [(found["initializer_range"], override, "another override")]
        wrong += [f"{case}: {key} is {value}, not {right}" for value, right, key in pairs if value != right]
    assert wrong == []


@ALL
def test_what_is_told_is_what_the_config_has(release: Release, results: Seen) -> None:
    wrong = []
    for case, found in results[release.label]["on"].items():
        direct = {
            "logprobs_mode": found["logprobs_mode"],
            "enable_prefix_caching": found["enable_prefix_caching"],
            "async_scheduling": found["async_scheduling, effective"],
        }
        if found["noted"] != found["values"] or direct.items() - found["values"].items():
            wrong.append(f"{case}: {found}")
    assert wrong == []


@ALL
def test_undone_the_engine_has_its_own_defaults(release: Release, results: Seen) -> None:
    # A patch that still waits for its module is not undone; test_fp32_head has its layers imported.
    staged = results[release.label]["states"]["fp32_head"][1] == "staged"
    keys = [key for key in STOCK if not (staged and key == "lm_head_dtype")]
    wrong = []
    for case, found in results[release.label]["off"].items():
        way, _, name = case.partition(": ")
        expected = STOCK if name == "nothing" else wanted(release, name)
        told = [f"{key} is {found['values'][key]}" for key in keys if found["values"][key] != expected[key]]
        if told or found["async_scheduling"] is not GIVEN[name].get("async_scheduling"):
            wrong.append(f"{case}: {told} {found['async_scheduling']}")
    assert wrong == []


@ALL
def test_the_values_are_told_once_and_a_contradiction_in_one_line(release: Release, results: Seen) -> None:
    wrong = []
    for case, found in results[release.label]["on"].items():
        against = {key: value for key, value in found["values"].items() if value != PROFILE[key]}
        expected = ["INFO"] + ["WARNING"] * bool(against)
        lines = [line for level, line in found["lines"] if level == "WARNING"]
        named = all(f"{key}={value} (set by you" in line for line in lines for key, value in against.items())
        if [level for level, _ in found["lines"]] != expected or not named:
            wrong.append(f"{case}: {found['lines']}")
    assert wrong == []
    (told,) = (line for _, line in results[release.label]["on"]["EngineArgs: nothing"]["lines"])
    values = ", ".join(f"{key}={value}" for key, value in PROFILE.items())
    assert told == f"{release.engine} {release.version}: profile rl: {values}"


@ALL
def test_undone_nothing_is_told(release: Release, results: Seen) -> None:
    assert [found["lines"] for found in results[release.label]["off"].values() if found["lines"]] == []
