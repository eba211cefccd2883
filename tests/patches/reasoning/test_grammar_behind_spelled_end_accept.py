"""The grammar behind a spelled end, in front of accept_tokens (over HTTP on the engines' core: tests/budget)."""

from __future__ import annotations

import pytest

from engine_overlay.patches.reasoning import grammar_behind_spelled_end_accept as patch
from tests.patches.reasoning import gate
from tests.patches.reasoning.manager import Manager, asked

(TARGET,) = (target.path for target in patch.PATCH.targets)


def accept(manager: Manager, *steps: tuple[str, ...]) -> list[list[int]]:
    """The ids that the engine's own accept_tokens got of the steps."""
    passed: list[list[int]] = []
    stock = {TARGET: lambda self, request, ids: passed.append(ids) or True}
    accept_tokens = patch.build(None, stock)[TARGET]
    for step in steps:
        assert accept_tokens(manager, manager.request, manager.say(*step)) is True
    return passed


@pytest.mark.parametrize(("steps", "taken"), asked())
def test_the_grammar_gets_what_came_behind_the_end(steps: list[tuple[str, ...]], taken: str) -> None:
    manager = Manager()
    assert len(accept(manager, *steps)) == len(steps) - 1
    assert manager.structured.reasoning_ended is True
    assert manager.taken == taken


def test_a_special_end_and_what_follows_are_left_to_the_engine() -> None:
    manager = Manager()
    assert len(accept(manager, ("Hm.",), ("</think>",), ("</", "think", ">"))) == 3
    assert manager.structured.reasoning_ended is False


def test_a_mention_ends_nothing() -> None:
    manager = Manager()
    accept(manager, ("The tag `",), ("</",), ("think",), (">",), ("` ends it.",))
    assert manager.structured.reasoning_ended is False


def test_a_changed_body_is_refused_by_name(tmp_path) -> None:
    changed = "class StructuredOutputManager:\n    def accept_tokens(self, request, new_token_ids):\n        pass\n"
    seen = gate.ask(tmp_path, patch, "0.33.0", {"v1.structured_output": changed})
    assert seen.code == "drifted"
    assert "accept_tokens" in seen.reason


def test_earlier_releases_have_another_patch(tmp_path) -> None:
    assert gate.ask(tmp_path, patch, "0.29.0", {}).code == "native"
