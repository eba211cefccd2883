"""Tests of one patch by itself, on real releases: a case that needs it, and its probe without it, with it and undone.

Each test file of a patch makes its tests here; a release is asked once for all of them.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest

from engine_overlay.verify import releases
from tests.matrix import environment, run

_CASES: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
"""Release -> patch to undo first, or "" -> the cases to ask."""


def needed(patch: str, *where: tuple[str, str]) -> Callable[..., None]:
    """A test for (release, beginning of a case's id): wrong without just this patch, right with it."""
    for label, case in where:
        _CASES[label][""].add(case)
        _CASES[label][patch].add(case)

    @pytest.mark.engine
    @pytest.mark.parametrize(("label", "case"), where)
    def test(label: str, case: str) -> None:
        without, with_it = _answers(label)[patch], _answers(label)[""]
        assert without["states"][patch] == "undone" and with_it["states"][patch] == "applied"
        (off,) = (ways for case_id, ways in without["wrong"].items() if case_id.startswith(case))
        (on,) = (ways for case_id, ways in with_it["wrong"].items() if case_id.startswith(case))
        assert off and not on

    return test


def probed(patch: str, *labels: str) -> Callable[..., None]:
    """A test for releases: the probe sees the fault on the stock engine, not with the patch, and again when it alone is
    undone; that no other patch covers it is more than :mod:`tests.matrix.judge` asks.
    """

    @pytest.mark.engine
    @pytest.mark.parametrize("label", labels)
    def test(label: str) -> None:
        result = run.results([releases.named(label)])[label]
        seen = result["on"]["patches"][patch]
        found = [result["off"]["probes"][patch], seen["on"], seen["undone"]]
        assert [finding["outcome"] for finding in found] == ["PRESENT", "ABSENT", "PRESENT"], found

    return test


def ask(label: str, *cases: str) -> None:
    """Ask a release these cases too; for modules to call while they are imported, before any test runs."""
    _CASES[label][""].update(cases)


def wrong(label: str, *cases: str) -> dict[str, list[str]]:
    """Case -> the ways in which a release answers it wrong with every patch in; of cases that were to be asked."""
    return {case: ways for case, ways in _answers(label)[""]["wrong"].items() if case in cases}


@cache
def _answers(label: str) -> dict[str, dict[str, Any]]:
    """Patch that was undone, or "" -> what :mod:`tests.patches.needed` found in one process of the release."""
    release = releases.named(label)
    asked = {patch: sorted(cases) for patch, cases in sorted(_CASES[label].items())}
    out = releases.cache() / "results" / f"needed-{label}.json"
    out.parent.mkdir(parents=True, exist_ok=True)
    command = ["-m", "tests.patches.needed", str(out), json.dumps(asked)]
    environment.run(command, releases.fetch(release), overlay=True, check=True)
    return json.loads(out.read_text(encoding="utf-8"))
