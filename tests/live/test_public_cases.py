"""Every public case over HTTP, streaming and full, from the released engine with the overlay in it."""

from __future__ import annotations

from typing import Any

import pytest

from engine_overlay.verify import cases as public
from tests.live import environment, public_cases
from tests.live.case_model import Pieces, make
from tests.live.server import serve

CASES = public.load()

WAYS = [
    pytest.param("one", "stream", id="streamed by one"),
    pytest.param("one", "full", id="full"),
    # The first token and the end come by themselves; the engine has no other way to join tokens.
    pytest.param("five", "stream", id="streamed by five"),
]

UNASKED: dict[str, str] = {}
"""Cases that this server cannot be asked, with the reason as :func:`public_cases.unasked` gives it: none."""


def _asked(mode: str, *arguments: str, **options: Any) -> public_cases.Record:
    model = make(environment.cache() / "live-case-model")
    python = environment.prepare(overlay=True)
    variables = {"ENGINE_OVERLAY": mode, **options.pop("variables", {})}
    with serve(python, model, *arguments, variables=variables, pairs=public_cases.pairs(), **options) as server:
        return public_cases.record(server)


@pytest.fixture(scope="module")
def on() -> dict[str, public_cases.Record]:
    return {"one": _asked("on"), "five": _asked("on", "--stream-interval", "5")}


@pytest.fixture(scope="module")
def off() -> public_cases.Record:
    return _asked("off")


def test_no_case_is_left_out() -> None:
    pieces = Pieces(CASES)
    assert {case["id"]: why for case in CASES if (why := public_cases.unasked(case, pieces))} == UNASKED
    assert len(CASES) >= 83


@pytest.mark.parametrize(("steps", "way"), WAYS)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case["id"])
def test_every_case_is_right(on: dict[str, Any], case: public.Case, steps: str, way: str) -> None:
    if case["id"] in UNASKED:
        pytest.skip(UNASKED[case["id"]])
    assert on[steps].wrong[case["id"]][way] == {}


@pytest.mark.parametrize("case_id", public_cases.GRAMMAR)
def test_the_grammar_of_the_engine_ends_the_answer_as_it_is_written(on: dict[str, Any], case_id: str) -> None:
    assert on["one"].as_written[case_id] == dict.fromkeys(("stream", "full"), "refused")


def test_switched_off_many_cases_are_wrong(off: public_cases.Record) -> None:
    streams = {case_id for case_id, ways in off.wrong.items() if ways["stream"]}
    spelled = {case["id"] for case in CASES if public.is_spelled(case["kind"])}
    assert spelled - streams == set()
    assert len(streams) >= 25
