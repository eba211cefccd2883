"""The own parser on DSML as models write it, in every cut and in one piece."""

from __future__ import annotations

import pytest

from engine_overlay.verify import cases as public
from tests.text import dsml_cases, own


@pytest.mark.parametrize("case", dsml_cases.ALL, ids=lambda case: case["id"])
def test_case(case):
    run = own.Run(case)
    wrong = {}
    for way, cuts in public.every_cut(case).items():
        if difference := public.wrong(case, run.stream(cuts)):
            wrong[way] = difference
    if difference := public.wrong(case, run.full()):
        wrong["full"] = difference
    assert not wrong
