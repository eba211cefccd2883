"""The reasoning parser that is asked of drafts sees a spelled end among them, at the right draft."""

from __future__ import annotations

import pytest

from engine_overlay.patches.reasoning import grammar_behind_spelled_end_drafts as patch
from tests.patches.reasoning import gate
from tests.patches.reasoning.manager import Manager

(TARGET,) = (target.path for target in patch.PATCH.targets)


def fires(manager: Manager, *drafts: str) -> list[bool]:
    """Of each draft, asked as grammar_bitmask asks, whether reasoning ends with it."""
    reasoner = patch.build(None, {TARGET: lambda self, request: self.reasoner})[TARGET](manager, manager.request)
    said = list(manager.request.output_token_ids)
    ids = [manager.tokenizer.id_of(draft) for draft in drafts]
    return [reasoner.is_reasoning_end_streaming([*said, *ids[: n + 1]], [ids[n]]) for n in range(len(ids))]


@pytest.mark.parametrize(
    ("drafts", "expected"),
    [
        (("Hm", "</", "think", ">", "{"), [False, False, False, True, False]),
        (("</think>", "{"), [True, False]),
        (("</", "think", ">{", "}"), [False, False, False, False]),
        (("`", "</", "think", ">", "`"), [False] * 5),
        (("I think ", "</", "think", ">", "{"), [False] * 5),
    ],
    ids=["spelled", "special", "says more", "a mention", "known a draft later"],
)
def test_it_fires_at_the_end_alone(drafts: tuple[str, ...], expected: list[bool]) -> None:
    assert fires(Manager(), *drafts) == expected


def test_an_end_that_began_before_the_drafts_is_seen() -> None:
    manager = Manager()
    manager.say("Hm.", "</", "think")
    assert fires(manager, ">", "{") == [True, False]


def test_all_drafts_at_once_are_asked_from_the_end_on_down() -> None:
    manager = Manager()
    reasoner = patch.build(None, {TARGET: lambda self, request: self.reasoner})[TARGET](manager, manager.request)
    ids = [manager.tokenizer.id_of(draft) for draft in ("Hm", "</", "think", ">", "{", "}")]
    assert [reasoner.is_reasoning_end_streaming(ids[:n], ids[:n]) for n in range(7)] == [False] * 4 + [True] * 3


def test_looking_at_drafts_changes_nothing() -> None:
    manager = Manager()
    assert fires(manager, "</", "think", ">") == [False, False, True]
    assert fires(manager, "</", "think", "!") == [False, False, False]
    assert manager.structured.reasoning_ended is False


def test_a_changed_body_is_refused_by_name(tmp_path) -> None:
    changed = "class StructuredOutputManager:\n    def _get_reasoner(self, request):\n        return None\n"
    seen = gate.ask(tmp_path, patch, "0.33.0", {"v1.structured_output": changed})
    assert seen.code == "drifted"
    assert "_get_reasoner" in seen.reason


@pytest.mark.parametrize("version", ["0.18.0", "0.24.0"])
def test_releases_that_ask_of_no_draft_are_not_affected(tmp_path, version: str) -> None:
    assert gate.ask(tmp_path, patch, version, {}).code == "native"
