"""With several tokens a step the grammar begins at the right one; see :mod:`tests.budget.drafts`."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import pytest

from engine_overlay.verify import releases
from tests.matrix import environment

pytestmark = pytest.mark.engine

ANY = ["Hm", "{", "}"]
MASKS_DRAFTS = ("vllm-0.25.1", "vllm-0.29.0", "vllm-0.31.0", "vllm-0.33.0", "aphrodite_engine-0.24.1")
LABELS = ("vllm-0.18.1", "vllm-0.23.0", "aphrodite_engine-0.21.0", *MASKS_DRAFTS)


@cache
def seen(label: str) -> dict[str, Any]:
    out = releases.cache() / "results" / f"budget-drafts-{label}.json"
    out.parent.mkdir(parents=True, exist_ok=True)
    out.unlink(missing_ok=True)
    sources = releases.fetch(releases.named(label))
    environment.run(["-m", "tests.budget.drafts", str(out)], sources, overlay=True, check=True)
    return json.loads(out.read_text(encoding="utf-8"))


@pytest.mark.parametrize("label", LABELS)
def test_the_grammar_takes_the_drafts_behind_the_end_once(label: str) -> None:
    on = seen(label)["on"]
    assert (on["ended"], on["after"]) == (True, ["}"])


@pytest.mark.parametrize("label", MASKS_DRAFTS)
def test_drafts_behind_the_end_are_held_to_the_grammar(label: str) -> None:
    assert seen(label)["on"]["rows"] == [ANY, ANY, ANY, ["{"], ["}"]]


@pytest.mark.parametrize("label", LABELS)
def test_the_stock_engine_holds_nothing_to_it(label: str) -> None:
    off = seen(label)["off"]
    assert (off["ended"], off["after"]) == (False, ANY)
    assert off["rows"] == [ANY] * 5
