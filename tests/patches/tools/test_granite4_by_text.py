"""``granite4_by_text`` on releases; see :mod:`tests.patches.tools.tags_on_engine` for the answers."""

from __future__ import annotations

import pytest

from tests.patches.tools.tags import EVERY, seen, wrong

pytestmark = pytest.mark.engine


@EVERY
def test_the_fault_comes_and_goes_with_it(label: str) -> None:
    got = seen(label)
    assert (got["with"]["granite4_by_text"], got["undone"]["granite4_by_text"]) == ("ABSENT", "PRESENT")


@EVERY
@pytest.mark.parametrize("parser", ["granite4"])
def test_every_answer_is_right_in_every_cut(label: str, parser: str) -> None:
    got = seen(label)
    assert got["asked"]["answers"] > 4000
    assert not wrong(got["asked"], parser)
    assert not got["asked"]["apart"]
    # Stock, more than half of them are wrong in some cut.
    assert len(wrong(got["stock"], parser)) > 13
