"""The names of the own parsers on releases with and without a parser engine."""

from __future__ import annotations

from typing import Any

import pytest

from engine_overlay.text.formats import UNIFIED
from tests.patches.unified.releases import WITH, WITHOUT, seen
from tests.patches.unified.scenarios import NAMES, STOCK, WITHOUT_V4

pytestmark = pytest.mark.engine

ALL = pytest.mark.parametrize("label", [*WITHOUT, *WITH])


def test_every_name_is_asked_for() -> None:
    assert set(NAMES) == set(UNIFIED)


@ALL
def test_both_managers_know_the_names(label: str) -> None:
    named = seen(label)["named"]
    assert named["reasoning"] == named["tools"] == sorted(_names_on(label))


@pytest.mark.parametrize("label", ["vllm-0.18.1", "vllm-0.33.0"])
def test_the_stock_release_does_not(label: str) -> None:
    with pytest.raises(Exception, match="returned non-zero"):
        seen(label, overlay=False)


@ALL
def test_a_name_gives_what_the_stock_names_give(label: str) -> None:
    same = seen(label)["same"]
    compared = 0
    for name, calls in _names_on(label).items():
        if UNIFIED[name][0] != STOCK[calls][0]:
            continue
        for form in ("whole", "spelled"):
            assert _bare(same[f"{name} {form} by 4"]) == _bare(same[f"stock {calls} {form} by 4"]), name
            compared += 1
    # All but deepseek_r1_engine, which has the calls of hermes.
    assert compared == 2 * (len(_names_on(label)) - 1)


@ALL
def test_the_name_for_deepseek_r1_gives_the_call(label: str) -> None:
    (answer,) = seen(label)["same"]["deepseek_r1_engine whole by 4"]["stream"]
    assert (answer["reasoning"], answer["calls"][0][0]) == ("I see.", "get_weather")


@pytest.mark.parametrize("label", WITHOUT)
def test_the_engine_core_sees_the_end_in_the_text(label: str) -> None:
    core = seen(label)["named"]["core"]
    assert core["whole"]["ends after"] == "Hm.</think>"
    assert core["spelled"]["ends after"] in ("Hm.</think>", "Hm.</think>\n\n")
    assert core["mention"]["ends after"] is None
    assert [core[title]["whole"] for title in ("whole", "spelled", "mention")] == [True, True, False]
    assert [core[title]["reasoning tokens"] for title in ("whole", "spelled", "mention")] == [2, 2, 0]


@pytest.mark.parametrize("label", WITHOUT)
def test_the_markers_are_those_of_the_format(label: str) -> None:
    assert {tuple(core["markers"]) for core in seen(label)["named"]["core"].values()} == {("<think>", "</think>")}


def _names_on(label: str) -> dict[str, str]:
    return {n: calls for n, calls in NAMES.items() if n != "deepseek_v4_engine" or label not in WITHOUT_V4}


def _bare(modes: dict[str, Any]) -> dict[str, Any]:
    return {mode: [{k: v for k, v in a.items() if k != "ids"} for a in answers] for mode, answers in modes.items()}
