"""What the engines' own samplers return as processed log-probabilities, and that the new default can be overruled."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace
from typing import Any

import pytest

from engine_overlay.patches.logprobs import processed_logprobs as patch
from engine_overlay.verify import releases
from tests.patches import releases_of
from tests.patches.logprobs.on_engine import ROWS

INIT, ASYNC_INIT, SUBCLASS, CLI = (target.path for target in patch.PATCH.targets)

LABELS = (
    *(f"vllm-{version}" for version in ("0.18.0", "0.20.0", "0.22.0", "0.24.0", "0.33.0")),
    *(f"aphrodite_engine-{version}" for version in ("0.20.0", "0.21.0", "0.22.0", "0.24.1")),
)
"""Releases in which the sampler or what it is told changed."""

EACH = pytest.mark.parametrize("label", LABELS)


@pytest.fixture(scope="module")
def results() -> dict[str, dict[str, Any]]:
    chosen = [releases.named(label) for label in LABELS]
    # Compiled counting of ranks would take a compiler and half a minute.
    more = {"TORCHDYNAMO_DISABLE": "1"}
    return releases_of.run(chosen, "tests.patches.logprobs.on_engine", [], more)


@pytest.mark.engine
@EACH
@pytest.mark.parametrize("row", range(len(ROWS)), ids=list(ROWS))
def test_processed_ones_are_those_of_the_distribution_that_is_sampled_from(label, row, results) -> None:
    found = results[label]
    mine, wanted = found["processed_logprobs"]["logprobs"][row], found["expected"][row]
    # None is -inf: the same tokens are outside the kept set.
    assert [x is None for x in mine] == [x is None for x in wanted]
    assert max(abs(a - b) for a, b in zip(mine, wanted, strict=True) if a is not None) < 1e-5
    assert mine[found["processed_logprobs"]["sampled"][row]] is not None


@pytest.mark.engine
@EACH
def test_tokens_outside_the_kept_set_have_none_only_where_there_is_a_filter(label, results) -> None:
    dropped = [any(x is None for x in row) for row in results[label]["processed_logprobs"]["logprobs"]]
    assert dict(zip(ROWS, dropped, strict=True)) == {
        "temperature": False,
        "top-k": True,
        "top-p": True,
        "min-p": True,
        "penalties": False,
        "all": True,
    }


@pytest.mark.engine
@EACH
def test_raw_ones_are_another_distribution(label, results) -> None:
    found = results[label]
    for row, wanted in enumerate(found["raw"]):
        mine = found["raw_logprobs"]["logprobs"][row]
        assert max(abs(a - b) for a, b in zip(mine, wanted, strict=True)) < 1e-5
        apart = [
            abs(a - b)
            for a, b in zip(mine, found["processed_logprobs"]["logprobs"][row], strict=True)
            if b is not None
        ]
        assert max(apart) > 0.1


class Args:
    """Classes as @dataclass makes them, and the patch built on them."""

    def __init__(self) -> None:
        @dataclasses.dataclass
        class EngineArgs:
            model: str = "m"
            logprobs_mode: str = "raw_logprobs"
            seed: int = 0

        @dataclasses.dataclass
        class AsyncEngineArgs(EngineArgs):
            log_requests: bool = False

        class ModelConfig:
            pass

        modules = {
            "engine.arg_utils": SimpleNamespace(EngineArgs=EngineArgs, AsyncEngineArgs=AsyncEngineArgs),
            "config": SimpleNamespace(ModelConfig=ModelConfig),
        }
        self.config = ModelConfig
        originals = {
            INIT: EngineArgs.__init__,
            ASYNC_INIT: AsyncEngineArgs.__init__,
            SUBCLASS: None,
            CLI: lambda cls: {"logprobs_mode": {"default": "raw_logprobs"}, "seed": {"default": 0}},
        }
        built = patch.build(SimpleNamespace(module=modules.__getitem__), originals)
        EngineArgs.__init__, AsyncEngineArgs.__init__ = built[INIT], built[ASYNC_INIT]
        EngineArgs.__init_subclass__ = built[SUBCLASS]
        self.plain, self.asynchronous, self.kwargs = EngineArgs, AsyncEngineArgs, built[CLI]


def test_a_value_by_keyword_or_by_place_wins() -> None:
    args = Args()
    for cls in (args.plain, args.asynchronous):
        assert cls("x").logprobs_mode == "processed_logprobs"
        assert cls("x", "raw_logprobs").logprobs_mode == "raw_logprobs"
        assert cls("x", "raw_logprobs", 3).seed == 3
        assert cls(logprobs_mode="raw_logprobs", seed=4).logprobs_mode == "raw_logprobs"
        assert cls(seed=4).logprobs_mode == "processed_logprobs"


def test_a_subclass_that_is_made_later_has_the_new_default_and_its_fields_in_order() -> None:
    args = Args()

    @dataclasses.dataclass
    class Later(args.plain):
        more: int = 1

    @dataclasses.dataclass
    class Own(args.plain):
        logprobs_mode: str = "raw_logits"

    class Undecorated(args.plain):
        pass

    assert Later().logprobs_mode == Undecorated().logprobs_mode == "processed_logprobs"
    assert Later("x", "raw_logprobs", 3, 4) == Later(model="x", logprobs_mode="raw_logprobs", seed=3, more=4)
    assert Own("x").logprobs_mode == "raw_logits"


def test_only_the_model_config_gets_another_default_on_the_command_line() -> None:
    args = Args()
    assert args.kwargs(args.config)["logprobs_mode"] == {"default": "processed_logprobs"}
    assert args.kwargs(args.config)["seed"] == {"default": 0}
    assert args.kwargs(object)["logprobs_mode"] == {"default": "raw_logprobs"}
