"""The gate: closed ranges, bodies, switches, groups, requirements and conflicts, each with its reason code."""

import dataclasses

import pytest

from engine_overlay import engines, verdict
from engine_overlay.record import ABSENT, Target, Tombstone
from engine_overlay.settings import Settings
from tests.core.support import body, catalog, engine, entry, record

PATH = "greeting:Greeter.greet"


@pytest.fixture
def found(tmp_path):
    return engines.locate("vllm", [str(engine(tmp_path))])


def as_version(found, version):
    return dataclasses.replace(found, version=version)


def good(found, **changes):
    return record(PATH, (body(found.root.parent, PATH),), **changes)


def one(found, patch, **settings):
    return verdict.decide(catalog(entry(patch)), found, Settings(**settings))[patch.id]


def test_known_bodies_in_the_closed_range_apply(found):
    assert one(found, good(found)).code == "apply"


def test_an_unknown_body_is_drifted_and_named(found):
    v = one(found, record(PATH, ("000000000000",)))
    assert v.code == "drifted" and v.refused
    assert v.reason == f"body of Greeter.greet is unknown ({body(found.root.parent, PATH)})"


def test_a_target_edited_by_hand_is_drifted(found):
    patch = good(found)
    path = found.root / "greeting.py"
    path.write_text(path.read_text().replace('"plain"', '"edited"'))
    assert one(found, patch).code == "drifted"


@pytest.mark.parametrize("path", ["greeting:Greeter.gone", "greeting:Gone.greet", "gone:Greeter.greet"])
def test_a_target_that_is_not_there_is_missing(found, path):
    assert one(found, record(path, ("000000000000",))).code == "missing"


def test_a_source_that_does_not_parse_is_missing_with_the_reason(found):
    (found.root / "greeting.py").write_text("def greet(:\n")
    v = one(found, record(PATH, ("000000000000",)))
    assert v.code == "missing" and "SyntaxError" in v.reason


def test_a_read_is_checked_like_a_target(found):
    patch = good(found, reads=(Target(path="greeting:greet", bodies=("000000000000",)),))
    assert one(found, patch).reason.startswith("body of greet is unknown")


def test_a_name_to_be_added_must_not_be_defined(found):
    assert one(found, record("greeting:Greeter.new", (ABSENT,))).code == "apply"
    assert one(found, record(PATH, (ABSENT,))).code == "drifted"


@pytest.mark.parametrize(
    ("version", "changes", "reason"),
    [
        ("0.0.9", {}, "it concerns vllm 0.1.0 and later"),
        ("0.1.5", {"fixed_in": {"vllm": "0.1.4"}}, "fixed upstream in vllm 0.1.4"),
        (
            "0.1.5",
            {"fixed_in": {"vllm": "0.1.4"}, "superseded_by": "better"},
            "better does this from vllm 0.1.4 on",
        ),
    ],
)
def test_releases_without_the_fault_are_native(found, version, changes, reason):
    v = one(as_version(found, version), good(found, **changes))
    assert (v.code, v.reason, v.refused) == ("native", reason, False)


def test_another_engine_is_native(tmp_path):
    aphrodite = engines.locate("aphrodite", [str(engine(tmp_path, name="aphrodite"))])
    assert one(aphrodite, record(PATH, ("000000000000",))).code == "native"


@pytest.mark.parametrize("version", ["0.3.0", None, "0.1.0.dev1+g1"])
@pytest.mark.parametrize(
    ("policy", "known", "unknown"),
    [("match", "apply", "untested"), ("refuse", "untested", "untested"), ("apply", "apply", "apply")],
)
def test_outside_the_range_the_policy_decides(found, version, policy, known, unknown):
    outside = as_version(found, version)
    changes = {"introduced_in": {"vllm": "0.0.1"}}
    assert one(outside, good(found, **changes), untested=policy).code == known
    assert one(outside, record(PATH, ("000000000000",), **changes), untested=policy).code == unknown


def test_what_is_missing_is_never_forced(found):
    newer = as_version(found, "0.3.0")
    assert one(newer, record("greeting:Gone.greet", ("000000000000",)), untested="apply").code == "missing"


def test_switches(found):
    assert one(found, good(found), disable=("politer",)).reason == "named in ENGINE_OVERLAY_DISABLE"
    assert one(found, good(found), only=("other",)).reason == "not named in ENGINE_OVERLAY_ONLY"
    off = good(found, default=False)
    assert one(found, off).code == "disabled"
    assert one(found, off, enable=("politer",)).code == one(found, off, only=("politer",)).code == "apply"


def pair(found, **changes):
    """``politer`` as given, and ``other`` which replaces another function."""
    other = record("greeting:greet", (body(found.root.parent, "greeting:greet"),), patch_id="other")
    return entry(good(found, **changes)), entry(other)


def test_a_group_goes_in_whole_or_not_at_all(found):
    a, b = pair(found, group="g")
    b = entry(dataclasses.replace(b.patch, group="g"))
    assert {v.code for v in verdict.decide(catalog(a, b), found, Settings()).values()} == {"apply"}
    got = verdict.decide(catalog(a, b), found, Settings(disable=("other",)))
    assert got["politer"].code == "disabled" and "other is disabled" in got["politer"].reason
    got = verdict.decide(catalog(a, b), found, Settings(disable=("other",), enable=("politer",)))
    assert got["politer"].code == "conflict" and "other is disabled" in got["politer"].reason


def test_a_requirement_must_go_in(found):
    a, b = pair(found, requires=("other",))
    assert verdict.decide(catalog(a, b), found, Settings())["politer"].code == "apply"
    got = verdict.decide(catalog(a, b), found, Settings(disable=("other",)))["politer"]
    assert got.code == "disabled" and "other, which is disabled" in got.reason
    # What was asked for by name is missed when it stays out.
    got = verdict.decide(catalog(a, b), found, Settings(disable=("other",), enable=("politer",)))["politer"]
    assert got.code == "conflict" and "other, which is disabled" in got.reason
    assert "not installed" in verdict.decide(catalog(a), found, Settings())["politer"].reason


def test_of_two_that_conflict_the_one_asked_for_by_name_stays(found):
    a, b = pair(found, conflicts=("other",))
    got = verdict.decide(catalog(a, b), found, Settings())
    assert (got["other"].code, got["politer"].code) == ("apply", "conflict")
    got = verdict.decide(catalog(a, b), found, Settings(enable=("politer",)))
    assert (got["other"].code, got["politer"].code) == ("conflict", "apply")


def test_two_patches_of_one_function_need_an_order(found):
    a = entry(good(found))
    b = entry(good(found, patch_id="louder"), origin="third party 1")
    assert verdict.decide(catalog(a, b), found, Settings())["louder"].code == "conflict"
    b = entry(good(found, patch_id="louder", after=("politer",)), origin="third party 1")
    assert verdict.decide(catalog(a, b), found, Settings())["louder"].code == "apply"
    assert verdict.decide(catalog(a, b), found, Settings(disable=("politer",)))["louder"].code == "apply"
    b = entry(good(found, patch_id="louder", requires=("politer",)), origin="third party 1")
    assert verdict.decide(catalog(a, b), found, Settings())["louder"].code == "apply"


def test_unknown_and_retired_ids_are_answered(found):
    known = catalog(entry(good(found)))
    known.tombstones["old"] = Tombstone(id="old", reason="the engine greets by itself", fixed_in={"vllm": "2.1.0"})
    lines = verdict.unknown_ids(known, Settings(disable=("politre", "old"), enable=("zzz",)))
    assert lines == [
        "ENGINE_OVERLAY_DISABLE: there is no patch politre, did you mean politer?",
        "ENGINE_OVERLAY_DISABLE: old was retired: the engine greets by itself (fixed in vllm 2.1.0); remove it there",
        'ENGINE_OVERLAY_ENABLE: there is no patch zzz; "engine-overlay plan" lists the known ones',
    ]
