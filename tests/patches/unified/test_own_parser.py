"""The parser that the parser manager composes, called without any serving code."""

from __future__ import annotations

import pytest

from tests.patches import alone
from tests.patches.unified.releases import WITHOUT, seen
from tests.patches.unified.scenarios import CALLED

pytestmark = pytest.mark.engine

ALL = pytest.mark.parametrize("label", WITHOUT)
WANT = {"reasoning": "I see.", "content": "Look:", "calls": CALLED}


@ALL
def test_a_stream_is_parsed_by_its_text(label: str) -> None:
    direct = seen(label)["direct"]
    if label.startswith(("vllm-0.18", "vllm-0.19")):
        assert "parse_delta" not in direct or {k: direct["parse_delta"][k] for k in WANT} == WANT
    else:
        assert {key: direct["parse_delta"][key] for key in WANT} == WANT


@ALL
def test_a_whole_answer_is_parsed_in_one_step_and_in_two(label: str) -> None:
    direct = seen(label)["direct"]
    assert direct["two steps"] == WANT
    assert direct.get("parse", WANT) == WANT
    assert "parse" in direct or label != "vllm-0.23.0"


@ALL
def test_other_pairs_stay(label: str) -> None:
    assert seen(label)["direct"]["other pair"] in (["_WrappedParser"], ["_Parser"])


@pytest.mark.parametrize("label", ["vllm-0.18.1", "vllm-0.22.1", "vllm-0.23.0", "aphrodite_engine-0.21.0"])
def test_switched_off_it_leaves_the_stock_names_alone_and_serves_its_own(label: str) -> None:
    same = seen(label, without="own_parser")["same"]
    for mode in ("stream", "full"):
        (own,), (stock,) = same["qwen3_engine spelled by 4"][mode], same["stock qwen3_xml spelled by 4"][mode]
        assert {key: own[key] for key in WANT} == WANT
        # Stock, the whole answer is read by its text, and a stream is not.
        assert ({key: stock[key] for key in WANT} == WANT) is (mode == "full")


test_a_case_needs_it = alone.needed(
    "own_parser",
    ("vllm-0.23.0", "003"),
)
