"""The processor of releases before 0.21 (its streams on the engines: tests/budget/test_streams.py)."""

from __future__ import annotations

import pytest

from engine_overlay.patches.reasoning import budget_behind_end_processor as patch
from tests.patches.reasoning import gate


def test_a_changed_body_is_refused_by_name(tmp_path) -> None:
    changed = "class ThinkingTokenBudgetLogitsProcessor:\n    def _update_think_state(self, state):\n        pass\n"
    seen = gate.ask(tmp_path, patch, "0.20.2", {"v1.sample.logits_processor.builtin": changed})
    assert seen.code == "drifted"
    assert "_update_think_state" in seen.reason


@pytest.mark.parametrize("version", ["0.18.1", "0.21.0", "0.33.0"])
def test_other_releases_are_not_affected(tmp_path, version: str) -> None:
    assert gate.ask(tmp_path, patch, version, {}).code == "native"
