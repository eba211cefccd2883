"""Prefix caching and asynchronous scheduling off by default, on arguments as the engines have them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from engine_overlay.patches.runtime import async_scheduling_off, prefix_caching_off
from engine_overlay.patches.weights import fp32_head_native

PATCHES = {"prefix": prefix_caching_off, "async": async_scheduling_off, "head": fp32_head_native}


class AsyncScheduler:
    pass


class PhraseScheduler(AsyncScheduler):
    pass


class OwnScheduler:
    pass


def defaulted(which: str, model: Any = None, **given: Any) -> SimpleNamespace:
    """The arguments behind the patched default step, whose stock part turns None into True."""

    def stock(self: Any, model_config: Any) -> None:
        if self.enable_prefix_caching is None:
            self.enable_prefix_caching = True

    modules = {"v1.core.sched.async_scheduler": SimpleNamespace(AsyncScheduler=AsyncScheduler)}
    engine = SimpleNamespace(module=modules.__getitem__)
    patch = PATCHES[which]
    (path,) = (target.path for target in patch.PATCH.targets)
    unset = {"enable_prefix_caching": None, "async_scheduling": None, "scheduler_cls": None}
    args = SimpleNamespace(**unset | given)
    patch.build(engine, {path: stock})[path](args, model)
    return args


@pytest.mark.parametrize("given", [True, False])
def test_what_the_user_set_stays(given: bool) -> None:
    assert defaulted("prefix", enable_prefix_caching=given).enable_prefix_caching is given
    assert defaulted("async", async_scheduling=given).async_scheduling is given


def test_what_nobody_set_is_off() -> None:
    assert defaulted("prefix").enable_prefix_caching is False
    assert defaulted("async").async_scheduling is False


def test_each_patch_leaves_the_other_value_alone() -> None:
    assert defaulted("prefix").async_scheduling is None
    assert defaulted("async").enable_prefix_caching is True


@pytest.mark.parametrize("chosen", [PhraseScheduler, f"{__name__}.PhraseScheduler"])
def test_a_scheduler_that_needs_them_keeps_them(chosen: Any) -> None:
    assert defaulted("prefix", scheduler_cls=chosen).enable_prefix_caching is True
    assert defaulted("async", scheduler_cls=chosen).async_scheduling is None


@pytest.mark.parametrize("chosen", [OwnScheduler, f"{__name__}.OwnScheduler", "no.such.Scheduler", "Bare"])
def test_any_other_scheduler_of_the_user_does_not(chosen: Any) -> None:
    assert defaulted("prefix", scheduler_cls=chosen).enable_prefix_caching is False
    assert defaulted("async", scheduler_cls=chosen).async_scheduling is False


def model(runner: str, **config: Any) -> SimpleNamespace:
    return SimpleNamespace(runner_type=runner, hf_config=SimpleNamespace(**config))


def test_a_generation_model_without_a_head_dtype_gets_float32() -> None:
    for config in (model("generate"), model("generate", head_dtype=None)):
        defaulted("head", config)
        assert config.hf_config.head_dtype == "float32"


@pytest.mark.parametrize("given", ["model", "bfloat16", "float32"])
def test_a_head_dtype_of_the_user_or_the_model_stays(given: str) -> None:
    config = model("generate", head_dtype=given)
    defaulted("head", config)
    assert config.hf_config.head_dtype == given


def test_a_pooling_model_is_left_alone() -> None:
    config = model("pooling")
    defaulted("head", config)
    assert not hasattr(config.hf_config, "head_dtype")
