"""The own parser: every public case of its formats, and what the cases do not show."""

from __future__ import annotations

import pytest

from tests.matrix import cases as public
from tests.text import own

CASES = [case for case in public.load() if own.covers(case)]


def test_the_formats_that_people_serve_have_their_cases() -> None:
    assert len(CASES) >= 76


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["id"])
def test_case(case: public.Case) -> None:
    run = own.Run(case)
    wrong = {}
    full = run.full()
    for way, cuts in public.cuts(case).items():
        answer = run.stream(cuts)
        if difference := public.wrong(case, answer):
            wrong[way] = difference
        elif own.raw(answer) != own.raw(full):
            wrong[way] = {"not as full": own.raw(answer), "full": own.raw(full)}
    if difference := public.wrong(case, full):
        wrong["full"] = difference
    assert not wrong
