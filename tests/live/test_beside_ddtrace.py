"""Every public case over HTTP from the released engine with the overlay in it, started as ``ddtrace-run`` starts it."""

from __future__ import annotations

import pytest

from engine_overlay.verify import cases as public
from tests.live import public_cases
from tests.live.test_public_cases import _asked
from tests.other_tools import environment
from tests.other_tools.test_other_tools import QUIET


@pytest.fixture(scope="module")
def found() -> public_cases.Record:
    site = environment.python().parent.parent / "lib/python3.11/site-packages"
    return _asked("on", variables=QUIET, beside=(site / "ddtrace" / "bootstrap", site))


@pytest.mark.parametrize("way", ["stream", "full"])
def test_every_case_is_right(found: public_cases.Record, way: str) -> None:
    assert {case["id"]: wrong for case in public.load() if (wrong := found.wrong[case["id"]][way])} == {}
