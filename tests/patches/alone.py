"""Tests of one patch by itself, on real releases: a case that needs it, and its probe without it, with it and undone.

Each test file of a patch makes its tests here; the releases are asked once for all of them.
"""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest

from engine_overlay.verify import releases
from tests.matrix import environment

_CASES: dict[tuple[str, str | None], set[str]] = defaultdict(set)
"""(release, patch switched off or None) -> the cases to ask it."""


def needed(patch: str, *where: tuple[str, str]) -> Callable[..., None]:
    """A test for (release, beginning of a case's id): wrong without just this patch, right with it."""
    for label, case in where:
        _CASES[label, None].add(case)
        _CASES[label, patch].add(case)

    @pytest.mark.engine
    @pytest.mark.parametrize(("label", "case"), where)
    def test(label: str, case: str) -> None:
        without, with_it = _answers(label, patch), _answers(label, None)
        assert without["states"][patch] == "" and with_it["states"][patch] == "applied"
        (off,) = (ways for case_id, ways in without["wrong"].items() if case_id.startswith(case))
        (on,) = (ways for case_id, ways in with_it["wrong"].items() if case_id.startswith(case))
        assert off and not on

    return test


def probed(patch: str, *labels: str) -> Callable[..., None]:
    """A test for releases: the probe sees the fault on the stock engine, not with the patch, and again after undo."""

    @pytest.mark.engine
    @pytest.mark.parametrize("label", labels)
    def test(label: str) -> None:
        assert _outcomes(label, patch, overlay=False) == {"stock": "PRESENT"}
        assert _outcomes(label, patch, overlay=True) == {"with it": "ABSENT", "undone": "PRESENT"}

    return test


def wrong(label: str, *cases: str) -> dict[str, list[str]]:
    """Case -> the ways in which a release answers it wrong with every patch in."""
    _CASES[label, None].update(cases)
    return {case: ways for case, ways in _answers(label, None)["wrong"].items() if case in cases}


@cache
def _answers(label: str, without: str | None) -> dict[str, Any]:
    release = releases.named(label)
    out = releases.cache() / "results" / f"needed-{label}-{without}.json"
    out.parent.mkdir(parents=True, exist_ok=True)
    more = {"ENGINE_OVERLAY_DISABLE": without} if without else {}
    command = ["-m", "tests.patches.needed", str(out), *sorted(_CASES[label, without])]
    environment.run(command, releases.fetch(release), overlay=True, more=more, check=True)
    return json.loads(out.read_text(encoding="utf-8"))


def _outcomes(label: str, patch: str, *, overlay: bool) -> dict[str, str]:
    release = releases.named(label)
    command = ["-m", "tests.patches.alone", patch, "with" if overlay else "without"]
    variables = environment.variables(releases.fetch(release), overlay=overlay, more={"ENGINE_OVERLAY_ENABLE": patch})
    done = environment.call(command, variables)
    done.check_returncode()
    return json.loads(done.stdout.strip().splitlines()[-1])


def main(patch: str, side: str) -> None:
    """In the process of a release: the outcomes of the patch's probe, as JSON on the last line."""
    from engine_overlay import catalog, commit, engines, importer

    (engine,) = engines.installed()
    entry = catalog.load().entries[patch]
    if side == "without":
        found = {"stock": entry.probe(engine).outcome.value}
    else:
        importer.install("api")
        found = {"with it": entry.probe(engine).outcome.value}
        commit.undo(patch)
        found["undone"] = entry.probe(engine).outcome.value
    print(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
