"""The environment: defaults, lists of ids, and one clear line for everything that cannot be understood."""

import pytest

from engine_overlay import settings


def test_nothing_set_means_on_match_info():
    got = settings.read({})
    assert (got.mode, got.untested, got.log, got.problems) == ("on", "match", "info", ())


def test_ids_may_be_written_with_hyphens_spaces_and_capitals():
    got = settings.read({"ENGINE_OVERLAY_DISABLE": " Spelled-Markers, other_one,,spelled_markers "})
    assert got.disable == ("spelled_markers", "other_one")


@pytest.mark.parametrize("value", ["off", "OFF", " 0 ", "false", "no"])
def test_off_has_the_usual_spellings(value):
    assert settings.read({"ENGINE_OVERLAY": value}).mode == "off"


def test_a_main_switch_that_cannot_be_read_serves_the_stock_engine():
    got = settings.read({"ENGINE_OVERLAY": "offf"})
    assert got.mode == "off"
    assert got.problems == (
        "ENGINE_OVERLAY='offf' is none of on, off, strict, did you mean off?; the stock engine is served, set it right",
    )


def test_another_word_that_cannot_be_read_falls_back_to_its_default():
    got = settings.read({"ENGINE_OVERLAY_UNTESTED": "macth"})
    assert got.untested == "match"
    assert "did you mean match?" in got.problems[0]


def test_an_unknown_variable_is_answered_with_the_nearest_known_one():
    (line,) = settings.read({"ENGINE_OVERLAY_DISBALE": "x"}).problems
    assert line == "ENGINE_OVERLAY_DISBALE: unknown variable, did you mean ENGINE_OVERLAY_DISABLE?; it is ignored"


def test_exclusion_wins_over_enable_and_only_and_says_so():
    got = settings.read({"ENGINE_OVERLAY_DISABLE": "a", "ENGINE_OVERLAY_ENABLE": "a", "ENGINE_OVERLAY_ONLY": "a,b"})
    assert got.named == {"b"}
    assert len(got.problems) == 2 and all("it stays out" in line for line in got.problems)


def test_enable_beyond_only_is_a_contradiction():
    (line,) = settings.read({"ENGINE_OVERLAY_ENABLE": "a", "ENGINE_OVERLAY_ONLY": "b"}).problems
    assert line.startswith("ENGINE_OVERLAY_ENABLE names a, but ENGINE_OVERLAY_ONLY does not")


def test_every_variable_is_described():
    assert set(settings.VARIABLES) == {*settings.CHOICES, *settings.ID_LISTS, settings.STATE_DIR, settings.PROXY}
