"""Profiles: which patches they ask for, and what is said when a value is not as a profile wants it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from engine_overlay import catalog, profile, settings, verdict
from engine_overlay.cli import status as cli
from engine_overlay.engines import Engine
from engine_overlay.settings import PROFILES, Settings
from engine_overlay.verdict import Verdict
from tests.core.support import answer, engine, louder_patch, python, record, third_party

IN = Verdict(verdict.APPLY, "known")
OUT = Verdict(verdict.DISABLED, "named in ENGINE_OVERLAY_DISABLE")
NATIVE = Verdict(verdict.NATIVE, "not here")
FINE = {key: wish.value for key, wish in profile.WISHES["rl"].items()}


def test_no_profile_asks_for_nothing() -> None:
    assert settings.read({}).profile == "off"
    assert settings.read({}).named == frozenset()
    assert settings.read({"ENGINE_OVERLAY_PROFILE": ""}).problems == ()


def test_the_profile_asks_for_its_patches_but_those_that_are_disabled() -> None:
    got = settings.read({"ENGINE_OVERLAY_PROFILE": " RL ", "ENGINE_OVERLAY_DISABLE": "fp32-head"})
    assert got.profile == "rl" and got.problems == ()
    assert got.named == set(PROFILES["rl"]) - {"fp32_head"}


def test_a_typo_is_answered_with_the_nearest_profile() -> None:
    got = settings.read({"ENGINE_OVERLAY_PROFILE": "rll"})
    assert got.profile == "off"
    assert got.problems == ("ENGINE_OVERLAY_PROFILE='rll' is none of off, rl, did you mean rl?; off is used",)
    (line,) = settings.read({"ENGINE_OVERLAY_PROFIL": "rl"}).problems
    assert "did you mean ENGINE_OVERLAY_PROFILE?" in line


def test_a_list_of_the_only_patches_keeps_the_others_out_and_says_so() -> None:
    got = settings.read({"ENGINE_OVERLAY_PROFILE": "rl", "ENGINE_OVERLAY_ONLY": "fp32_head,fp32_head_native"})
    (line,) = got.problems
    assert line.startswith("ENGINE_OVERLAY_PROFILE=rl has patches that ENGINE_OVERLAY_ONLY does not name (")
    assert "processed_logprobs" in line and "fp32_head" not in line


def test_every_patch_of_a_profile_exists_and_is_off_by_default() -> None:
    entries = catalog.load(third_party=False).entries
    for name, ids in PROFILES.items():
        assert {i: entries[i].patch.default for i in ids} == dict.fromkeys(ids, False)
        named = {i for wish in profile.WISHES[name].values() for i in wish.patches}
        assert named <= set(ids)


def test_every_patch_that_is_off_by_default_says_how_to_add_it(tmp_path) -> None:
    known = catalog.load(third_party=False)
    here = Engine("vllm", "0.24.0", None, engine(tmp_path, "0.24.0") / "vllm")
    decided = verdict.decide(known, here, Settings())
    for i in PROFILES["rl"]:
        if decided[i].code != verdict.NATIVE:
            assert decided[i].reason.endswith(f"ENGINE_OVERLAY_ENABLE={i} or ENGINE_OVERLAY_PROFILE=rl adds it")


def test_nothing_is_said_of_values_that_are_as_wanted() -> None:
    assert profile.differences("rl", FINE, {}) == []
    assert profile.differences("off", {"logprobs_mode": "raw_logprobs"}, {}) == []


def test_a_value_against_the_profile_is_the_users_where_the_patch_is_in() -> None:
    values = FINE | {"logprobs_mode": "raw_logprobs", "cascade_attention": True}
    found = profile.differences("rl", values, {"processed_logprobs": IN})
    line = profile.contradiction(found)
    assert "logprobs_mode=raw_logprobs (set by you or by the model's config)" in line
    assert "cascade_attention=True (set by you" in line
    assert "\n" not in line and "async_scheduling" not in line


@pytest.mark.parametrize("decided", [{"fp32_head": NATIVE, "fp32_head_native": OUT}, {"fp32_head_native": OUT}])
def test_a_patch_that_stays_out_is_named_as_the_reason(decided) -> None:
    found = profile.differences("rl", FINE | {"lm_head_dtype": "bfloat16"}, decided)
    assert found == [("lm_head_dtype", "bfloat16", "fp32_head_native is disabled")]


def test_a_reader_that_fails_is_one_warning_and_keeps_nothing(caplog, monkeypatch) -> None:
    monkeypatch.setattr(profile.logger, "propagate", True)
    monkeypatch.setattr(profile, "_noted", {})
    profile.tell("vllm", lambda: 1 / 0)
    lines = (record.getMessage() for record in caplog.records)
    (line,) = {line for line in lines if line.startswith("vllm")}
    assert "ZeroDivisionError" in line and "the engine is not affected" in line
    assert profile.noted() == {}


def test_what_a_probe_causes_is_not_kept(monkeypatch) -> None:
    monkeypatch.setattr(profile, "_noted", {})
    with profile.capture() as told:
        profile.tell("vllm", lambda: {"a": 1})
    assert told == [{"a": 1}]
    assert profile.noted() == {}


CODE = """
from engine_overlay import importer, profile, status
import json
importer.install('api')
import vllm.greeting
for _ in range(2):
    profile.tell('vllm', lambda: dict(%r))
report = status.report()
print(json.dumps([report['profile'], report['values'], report['problems']]))
"""


def test_values_are_logged_once_kept_for_status_and_contradicted_in_one_line(tmp_path) -> None:
    third_party(engine(tmp_path), "loud_patches", louder_patch(tmp_path))
    values = FINE | {"enable_prefix_caching": True}
    done = python(tmp_path, CODE % values, ENGINE_OVERLAY_PROFILE="rl")
    assert answer(done) == ["rl", {"vllm": values}, []]
    lines = [line for line in done.stderr.splitlines() if "profile rl" in line]
    assert len(lines) == 2
    assert lines[0].endswith("profile rl: " + profile.spelled(values))
    assert "WARNING" in lines[1] and "enable_prefix_caching=True" in lines[1]


def test_status_shows_the_values_where_they_are_known_and_says_where_else() -> None:
    assert cli._profile({"profile": "rl", "values": {"vllm": FINE}}) == [f"profile rl, vllm: {profile.spelled(FINE)}"]
    (line,) = cli._profile({"profile": "rl", "values": {}})
    assert "in the process that makes the engine's config" in line
    assert cli._profile({"profile": "off", "values": {}}) == []
    assert cli._profile({}) == []  # a status file of an earlier version


def test_a_patch_of_a_profile_that_is_refused_counts_as_asked_for_by_name() -> None:
    patch = replace(record("greeting:greet", ("0" * 12,)), id="fp32_head")
    assert patch.id in Settings(profile="rl").named
