"""DSML as models write it, on releases with and without a parser engine: every cut, and full."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import pytest

from engine_overlay.verify import releases
from tests.matrix import environment
from tests.patches import alone
from tests.text import dsml_cases

WITH = (
    "vllm-0.25.0",
    "vllm-0.27.1",
    "vllm-0.30.0",
    "vllm-0.33.0",
    "aphrodite_engine-0.22.0",
    "aphrodite_engine-0.24.1",
)
OWN = ("vllm-0.18.0", "vllm-0.21.0", "vllm-0.23.0", "aphrodite_engine-0.21.0")

pytestmark = pytest.mark.engine


@cache
def seen(label: str, patch: str = "") -> dict[str, Any]:
    out = releases.cache() / "results" / f"dsml-{label}.json"
    out.parent.mkdir(parents=True, exist_ok=True)
    command = ["-m", "tests.patches.tools.dsml_on_engine", str(out), *([patch] if patch else [])]
    environment.run(command, releases.fetch(releases.named(label)), overlay=True, check=True)
    return json.loads(out.read_text(encoding="utf-8"))


@pytest.mark.parametrize("label", WITH)
def test_every_shape_is_right_with_it(label: str) -> None:
    found = seen(label, "dsml_markup")
    assert found["states"]["dsml_markup"] == "applied"
    assert found["asked"] == len(dsml_cases.ALL) and found["with it"] == {}


@pytest.mark.parametrize("label", WITH)
def test_the_malformed_ones_are_wrong_when_it_is_undone(label: str) -> None:
    # A value that is closed twice is the business of argument_stream.
    others = {"a value closed twice"}
    assert set(seen(label, "dsml_markup")["undone"]) == {case["id"] for case in dsml_cases.MALFORMED} - others


@pytest.mark.parametrize("label", OWN)
def test_every_shape_is_right_with_the_own_parser(label: str) -> None:
    found = seen(label)
    assert found["states"]["own_parser"] == "applied"
    # vLLM before 0.20 knows V3.2 alone.
    asked = [case for case in dsml_cases.ALL if label != "vllm-0.18.0" or case["tool_parser"] == "deepseek_v32"]
    assert found["asked"] == len(asked) and found["with it"] == {}


test_the_fault_comes_and_goes_with_it = alone.probed(
    "dsml_markup",
    "vllm-0.25.0",
    "vllm-0.33.0",
    "aphrodite_engine-0.24.1",
)
