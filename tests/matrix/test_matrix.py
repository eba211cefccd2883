"""What the matrix must show on every release; the runs are those of :mod:`tests.matrix.run`, kept in the
cache.
"""

from __future__ import annotations

import pytest

from engine_overlay.verify import releases
from engine_overlay.verify.releases import Release
from tests.matrix import judge, run, spread, versions
from tests.matrix.store import Result
from tests.serving import run as serving

Results = dict[str, Result]

ALL = pytest.mark.parametrize("release", releases.pinned(), ids=lambda release: release.label)
WITH_PARSER_ENGINE = pytest.mark.parametrize(
    "release", [r for r in releases.pinned() if r.has_parser_engine], ids=lambda release: release.label
)
WITHOUT = pytest.mark.parametrize(
    "release", [r for r in releases.pinned() if not r.has_parser_engine], ids=lambda release: release.label
)


@pytest.fixture(scope="module")
def results() -> Results:
    return run.results(spread.chosen(), print)


@ALL
def test_each_patch_is_proven(release: Release, results: Results) -> None:
    result = results[release.label]
    cells = {i: judge.cell(result, i) for i in result["on"]["patches"]}
    assert cells, "no patch was known"
    assert not [f"{i}: {cell}" for i, cell in cells.items() if cell.word not in judge.GOOD]


@ALL
def test_overlay_came_through_the_startup_file(release: Release, results: Results) -> None:
    on = results[release.label]["on"]
    assert (on["way"], on["version"], on["problems"]) == ("startup", release.version, [])


@ALL
def test_off_is_off(release: Release, results: Results) -> None:
    assert judge.off_unclean(results[release.label]) == []


@ALL
def test_undo_gives_the_stock_answers_back(release: Release, results: Results) -> None:
    assert judge.undo_incomplete(results[release.label]) == []


@ALL
def test_no_case_turns_wrong(release: Release, results: Results) -> None:
    assert judge.worse(results[release.label]) == []


@WITH_PARSER_ENGINE
def test_spelled_markers_are_right(release: Release, results: Results) -> None:
    assert judge.spelled_wrong(results[release.label]) == []


@WITHOUT
def test_every_case_of_the_own_parsers_formats_is_right(release: Release, results: Results) -> None:
    assert len(judge.own_wrong(results[release.label], "off")) > 100
    assert judge.own_wrong(results[release.label]) == []


@WITHOUT
def test_spelled_end_of_reasoning_is_seen(release: Release, results: Results) -> None:
    assert judge.end_missed(results[release.label], "off")
    assert judge.end_missed(results[release.label]) == []


@ALL
def test_stock_engine_gets_spelled_markers_wrong(release: Release, results: Results) -> None:
    # Otherwise the tests above would say nothing about the overlay.
    assert len(judge.spelled_wrong(results[release.label], "off")) > 20


def test_every_pinned_release_is_in_range_and_known_once() -> None:
    pinned = releases.pinned()
    assert len(pinned) == len(set(pinned)) >= 29
    assert {release.distribution for release in pinned} == set(releases.FLOOR)


def test_versions_file_is_current(results: Results) -> None:
    text = versions.render(results, serving.results(spread.chosen(), print))
    kept = versions.FILE.read_text(encoding="utf-8")
    if spread.EVERY:
        assert kept == text, "run: python -m tests.matrix.versions"
    # Of some releases there are some columns and rows.
    here, all_of_them = versions.cells(text), versions.cells(kept)
    assert len(here) > 1000
    assert {place: all_of_them.get(place) for place in here} == here, "run: python -m tests.matrix.versions"
