"""``fp32_head_native`` on model configs as the engines have them; logits on real releases are in test_fp32_head."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from engine_overlay.patches.weights import fp32_head_native
from tests.patches.runtime.defaulted import defaulted


def model(runner: str, **config: Any) -> SimpleNamespace:
    return SimpleNamespace(runner_type=runner, hf_config=SimpleNamespace(**config))


def test_a_generation_model_without_a_head_dtype_gets_float32() -> None:
    for config in (model("generate"), model("generate", head_dtype=None)):
        defaulted(fp32_head_native, config)
        assert config.hf_config.head_dtype == "float32"


@pytest.mark.parametrize("given", ["model", "bfloat16", "float32"])
def test_a_head_dtype_of_the_user_or_the_model_stays(given: str) -> None:
    config = model("generate", head_dtype=given)
    defaulted(fp32_head_native, config)
    assert config.hf_config.head_dtype == given


def test_a_pooling_model_is_left_alone() -> None:
    config = model("pooling")
    defaulted(fp32_head_native, config)
    assert not hasattr(config.hf_config, "head_dtype")
