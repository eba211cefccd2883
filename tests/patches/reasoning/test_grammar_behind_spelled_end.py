"""The grammar behind a spelled end, in front of should_advance (over HTTP on the engines' core: tests/budget)."""

from __future__ import annotations

import pytest

from engine_overlay.patches.reasoning import grammar_behind_spelled_end as patch
from tests.patches.reasoning import gate
from tests.patches.reasoning.manager import Manager, asked

(TARGET,) = (target.path for target in patch.PATCH.targets)


def advance(manager: Manager, *steps: tuple[str, ...]) -> list[bool]:
    """What should_advance says after each step of pieces."""
    calls: list[object] = []
    stock = {TARGET: lambda self, request, *arguments, **named: calls.append(request) or self.stock_says}
    should_advance = patch.build(None, stock)[TARGET]
    said = []
    for step in steps:
        manager.say(*step)
        said.append(should_advance(manager, manager.request))
    manager.stock_calls = len(calls)
    return said


@pytest.mark.parametrize(("steps", "taken"), asked())
def test_the_grammar_gets_what_came_behind_the_end(steps: list[tuple[str, ...]], taken: str) -> None:
    manager = Manager()
    assert advance(manager, *steps)[-1] is False
    assert manager.structured.reasoning_ended is True
    assert manager.taken == taken


def test_a_special_end_is_left_to_the_engine() -> None:
    manager = Manager()
    advance(manager, ("Hm.",), ("</think>",))
    assert manager.structured.reasoning_ended is False
    assert manager.stock_calls == 2


@pytest.mark.parametrize("ended", [True, None])
def test_before_and_after_reasoning_the_engine_is_asked_alone(ended: bool | None) -> None:
    manager = Manager()
    manager.structured.reasoning_ended = ended
    manager.stock_says = True
    assert advance(manager, ("</", "think", ">", "{")) == [True]
    assert manager.taken == ""


def test_a_grammar_that_holds_in_reasoning_too_is_left_alone() -> None:
    manager = Manager()
    manager.enable_in_reasoning = True
    advance(manager, ("</", "think", ">"))
    assert manager.structured.reasoning_ended is False


def test_what_the_grammar_does_not_want_leaves_it_at_its_beginning() -> None:
    manager = Manager(wants=lambda text: text.startswith("{"))
    advance(manager, ("Hm.", "</", "think", ">", "Sure"))
    assert manager.structured.reasoning_ended is True
    assert manager.taken == ""


def test_white_space_that_the_grammar_does_not_want_is_left_out() -> None:
    manager = Manager(wants=lambda text: text.startswith("{"))
    advance(manager, ("Hm.", "</", "think", ">", "\n", "{"))
    assert manager.taken == "{"


def test_a_mention_ends_nothing() -> None:
    manager = Manager()
    advance(manager, ("The tag `",), ("</",), ("think",), (">",), ("` ends it.",))
    assert manager.structured.reasoning_ended is False


def test_a_changed_body_is_refused_by_name(tmp_path) -> None:
    changed = "class StructuredOutputManager:\n    def should_advance(self, request):\n        return True\n"
    seen = gate.ask(tmp_path, patch, "0.23.0", {"v1.structured_output": changed})
    assert seen.code == "drifted"
    assert "should_advance" in seen.reason


def test_later_releases_have_another_patch(tmp_path) -> None:
    assert gate.ask(tmp_path, patch, "0.30.0", {}).code == "native"
