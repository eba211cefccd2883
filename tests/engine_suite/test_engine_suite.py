"""The engines' own tests end alike with the overlay and without it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from engine_overlay.verify.releases import named
from tests.engine_suite.compare import Comparison, compare
from tests.engine_suite.runs import Run
from tests.engine_suite.sources import RELEASES, folders
from tests.matrix import spread

FLOORS = {
    "vllm-0.33.0": {"tests/parser/engine": 6000, "tests/reasoning": 100, "tests/tool_parsers": 700},
    "vllm-0.23.0": {"tests/parser": 0, "tests/reasoning": 20, "tests/tool_parsers": 280},
    "vllm-0.24.0": {"tests/parser/engine": 2000, "tests/reasoning": 40, "tests/tool_parsers": 300},
}
"""Release -> {folder: how many of its tests pass at least}. What needs a model from a hub errs in both."""


@pytest.fixture(scope="module", params=RELEASES if spread.EVERY else RELEASES[:1])
def comparison(request: pytest.FixtureRequest) -> Iterator[Comparison]:
    """Both runs of one release, made once for all tests of this file."""
    yield compare(named(request.param))


def test_every_test_ends_alike(comparison: Comparison) -> None:
    """Same passed, same failed, same errors, and of the same type."""
    assert not comparison.differences, "\n".join(comparison.lines())


def test_enough_of_them_passed(comparison: Comparison) -> None:
    """Two runs in which nothing could be imported would be equal, too."""
    floors = FLOORS[comparison.release.label]
    assert set(floors) == set(folders(comparison.release))
    for folder, floor in floors.items():
        assert len(comparison.off.passed(folder)) >= floor
        assert len(comparison.on.passed(folder)) >= floor


def test_the_overlay_was_in_the_run_that_is_on(comparison: Comparison) -> None:
    """By its start-up file, in the release under test, with the patches that the gate admitted in place."""
    report = comparison.on.overlay
    assert report is not None, "the overlay was never loaded"
    assert (report["way"], report["engine"]["version"]) == ("startup", comparison.release.version)
    admitted = {patch["id"]: patch["state"] for patch in report["patches"] if patch["verdict"] == "apply"}
    assert admitted
    assert set(admitted.values()) <= {"applied", "staged"}
    assert "applied" in admitted.values()
    assert not report["problems"]


def test_nothing_of_the_overlay_was_in_the_run_that_is_off(comparison: Comparison) -> None:
    """Otherwise the comparison would compare the overlay with itself."""
    assert (comparison.off.overlay, comparison.off.modules) == (None, ())


def test_a_difference_is_seen() -> None:
    """The comparison itself: another outcome, another type of exception, and a test that is missing."""

    def seen(**outcomes: str) -> Run:
        return Run(outcomes, {}, None, ())

    before = seen(same="passed", worse="passed", other="failed KeyError", gone="passed")
    after = seen(same="passed", worse="failed AssertionError", other="failed TypeError", new="passed")
    assert Comparison(named("vllm-0.33.0"), before, after).differences == {
        "gone": ("passed", "not run"),
        "new": ("not run", "passed"),
        "other": ("failed KeyError", "failed TypeError"),
        "worse": ("passed", "failed AssertionError"),
    }
