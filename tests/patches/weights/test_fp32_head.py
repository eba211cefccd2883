"""Logits with a float32 head on every release: as a float32 reference, and in bfloat16 without the patches."""

from __future__ import annotations

from typing import Any

import pytest

from engine_overlay.patches.weights import fp32_head, fp32_head_native
from engine_overlay.verify import releases
from engine_overlay.verify.releases import Release
from tests.matrix import spread
from tests.patches import releases_of
from tests.patches.weights.on_engine import ROWS
from tests.serving import one as serving

pytestmark = pytest.mark.engine

Seen = dict[str, dict[str, Any]]

BY_THE_PATCH = [r for r in releases.pinned() if r.version <= fp32_head.PATCH.engines[r.engine].last]
# Of those with a switch of their own, the ones in which it changed; test_rl_profile asks all of them for the value.
BY_THE_ENGINE = [
    releases.named(label)
    for label in ("vllm-0.26.0", "vllm-0.29.0", "vllm-0.33.0", "aphrodite_engine-0.22.0", "aphrodite_engine-0.24.1")
]
ALL = pytest.mark.parametrize("release", [*BY_THE_PATCH, *BY_THE_ENGINE], ids=lambda release: release.label)
CASES = {
    *(f"{kind}{what}" for kind in ("untied", "tied", "tie_weights") for what in ("", ", updated in place")),
    *("soft cap and scale", "lora"),
}
TOP = {f"{kind}, top tokens" for kind in ("untied", "tied", "tie_weights")}


@pytest.fixture(scope="module")
def results() -> Seen:
    model = str(serving.model_folder())
    module = "tests.patches.weights.on_engine"
    chosen = [release for release in (*BY_THE_PATCH, *BY_THE_ENGINE) if release in spread.chosen()]
    return releases_of.run(chosen, module, [model], {"ENGINE_OVERLAY_PROFILE": "rl"})


def test_the_two_patches_cover_all_releases_between_them() -> None:
    assert fp32_head.PATCH.superseded_by == fp32_head_native.PATCH.id
    for engine, fixed in fp32_head.PATCH.fixed_in.items():
        assert fp32_head_native.PATCH.introduced_in[engine] == fixed == fp32_head_native.PATCH.engines[engine].first


@ALL
@pytest.mark.parametrize("side", ["on", "on, two ranks"])
def test_logits_are_those_of_a_float32_product(release: Release, side: str, results: Seen) -> None:
    found = results[release.label][side]
    assert set(found) == CASES | TOP | ({"bias"} if side == "on" else set())
    for name in sorted(set(found) - TOP):
        assert found[name]["dtype"] == "torch.float32", name
        assert found[name]["error"] < 1e-5, name
    assert {name: found[name] for name in TOP} == dict.fromkeys(TOP, {"right": ROWS})


@ALL
@pytest.mark.parametrize("side", ["off", "on, the model's dtype"])
def test_without_it_and_where_the_user_keeps_the_models_dtype_they_are_rounded(
    release: Release, side: str, results: Seen
) -> None:
    found = results[release.label][side]
    for name in sorted(set(found) - TOP):
        assert found[name]["dtype"] == "torch.bfloat16", name
        assert 1e-3 < found[name]["error"] < 1e-2, name


@pytest.mark.parametrize("release", BY_THE_PATCH, ids=lambda release: release.label)
def test_a_quantised_head_is_refused_in_one_line(release: Release, results: Seen) -> None:
    said = results[release.label]["refused"]
    assert said.startswith("engine-overlay: fp32_head: the lm_head is quantised (Fp8LinearMethod)")
    assert "ENGINE_OVERLAY_DISABLE=fp32_head" in said
    assert "\n" not in said


@ALL
def test_the_engines_switch_is_used_where_there_is_one(release: Release, results: Seen) -> None:
    states = results[release.label]["states"]
    own = release in BY_THE_PATCH
    assert states["fp32_head"] == (["apply", "applied"] if own else ["native", ""])
    assert states["fp32_head_native"][0] == ("native" if own else "apply")
