"""``tool_half_serving`` on releases; see :mod:`tests.patches.tools.tags_on_engine` for the answers."""

from __future__ import annotations

import pytest

from tests.patches.tools.tags import EVERY, seen

pytestmark = pytest.mark.engine


@EVERY
def test_the_fault_comes_and_goes_with_it(label: str) -> None:
    got = seen(label)
    assert (got["with"]["tool_half_serving"], got["undone"]["tool_half_serving"]) == ("ABSENT", "PRESENT")


@EVERY
def test_calls_that_nobody_wants_are_taken_out(label: str) -> None:
    assert seen(label)["none"] == {"stream": ["Hi `<tool_call>`.", None], "full": ["Hi `<tool_call>`.", None]}


@EVERY
def test_choices_of_one_request_do_not_meet(label: str) -> None:
    assert seen(label)["side by side"] == [["", [["f", '{"x": 1}']]], ["a <tool", []]]
