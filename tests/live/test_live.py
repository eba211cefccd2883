"""The released engine, asked by the openai client: overlay on, overlay off, and without the package."""

from __future__ import annotations

import json
import re
from collections.abc import Callable

import pytest

from tests.live.answers import QUOTED, SCRIPTS, Answer, Speller, leaked, spelling_of, stream_of_its_own
from tests.live.scenario import BUDGET, CALLED, CROWDS, SAID, SPELLINGS, THOUGHT, Record

USED = ("spelled_markers", "reasoning_handoff", "extract_reasoning_tool_events", "reasoning_strings")
"""Patches whose targets the API server has imported with these parsers; others wait for theirs."""

STREAMED = [pytest.param(True, id="streamed"), pytest.param(False, id="full")]


@pytest.mark.parametrize("stream", STREAMED)
@pytest.mark.parametrize("spelling", SPELLINGS)
@pytest.mark.parametrize("name", SCRIPTS)
def test_on_every_spelling_means_the_same(on: Record, name: str, spelling: str, stream: bool) -> None:
    assert on.answers[name, spelling, stream] == SCRIPTS[name].answer


@pytest.mark.parametrize("name", SCRIPTS)
def test_switched_off_a_spelled_end_of_reasoning_leaks_as_in_the_stock_engine(
    off: Record, without: Record, name: str
) -> None:
    text, stop = SCRIPTS[name].text, SCRIPTS[name].stop
    said = text.partition(stop[0])[0] if stop else text
    for record in (off, without):
        assert record.answers[name, "spelled", True] == Answer(said, "", (), "stop")
        assert record.answers[name, "spelled", False] == SCRIPTS[name].answer


@pytest.mark.parametrize("name", [name for name, script in SCRIPTS.items() if not script.stop])
def test_on_and_off_stream_the_same_bytes_for_whole_markers(on: Record, off: Record, name: str) -> None:
    assert _common(on.bodies[name, "whole", True], off.bodies[name, "whole", True])


@pytest.mark.parametrize("name", SCRIPTS)
def test_on_and_off_give_the_same_full_bytes_for_whole_markers(on: Record, off: Record, name: str) -> None:
    assert _common(on.bodies[name, "whole", False], off.bodies[name, "whole", False])


def test_off_a_stop_string_lets_a_part_of_a_whole_marker_through(off: Record) -> None:
    # The engine holds text back for the stop string, but not the ids; the overlay keeps both in step.
    script = SCRIPTS["tool, stop not reached"]
    seen = off.answers["tool, stop not reached", "whole", True]
    assert seen.calls == script.answer.calls
    assert seen.content.strip() == "<tool_ca"


@pytest.mark.parametrize("name", SCRIPTS)
def test_on_and_off_differ_in_streams_with_spelled_markers(on: Record, off: Record, name: str) -> None:
    assert not _common(on.bodies[name, "spelled", True], off.bodies[name, "spelled", True])


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_full_answer_with_spelled_markers_differs_in_its_count_of_reasoning_alone(
    on: Record, off: Record, speller: Speller, name: str
) -> None:
    (with_it,), (stock,) = (record.bodies[name, "spelled", False] for record in (on, off))
    thought = SCRIPTS[name].text.partition("</think>")[0]
    counted = f'"reasoning_tokens":{len(speller.ids(thought, "whole"))}}}'
    assert counted in with_it
    assert counted not in stock
    assert with_it == re.sub(r'"reasoning_tokens":\d+}', counted, stock)


@pytest.mark.parametrize("stream", STREAMED)
@pytest.mark.parametrize("spelling", SPELLINGS)
@pytest.mark.parametrize("name", SCRIPTS)
def test_off_gives_the_bytes_of_an_engine_without_the_package(
    off: Record, without: Record, name: str, spelling: str, stream: bool
) -> None:
    assert _common(off.bodies[name, spelling, stream], without.bodies[name, spelling, stream])


def test_a_quoted_tag_stays_text(on: Record) -> None:
    assert on.quoted[True] == QUOTED.answer


@pytest.mark.parametrize("size", CROWDS)
def test_streams_at_once_do_not_mix(on: Record, size: int) -> None:
    assert on.crowds[size] == [stream_of_its_own(n).answer for n in range(size)]


@pytest.mark.parametrize("size", CROWDS)
def test_streams_at_once_leak_only_themselves_when_off(off: Record, size: int) -> None:
    scripts = [stream_of_its_own(n) for n in range(size)]
    expected = [s.answer if spelling_of(n) == "whole" else leaked(s) for n, s in enumerate(scripts)]
    assert off.crowds[size] == expected


@pytest.mark.parametrize("stream", STREAMED)
@pytest.mark.parametrize("which", ["on", "off"])
def test_a_thinking_budget_is_kept(
    by_name: Callable[[str], Record], speller: Speller, which: str, stream: bool
) -> None:
    ids = speller.ids(THOUGHT, "whole")
    # The newline after <think> in the prompt counts; the end of reasoning takes the place of the next token.
    thought, rest = speller.text(ids[: BUDGET - 1]), speller.text(ids[BUDGET:])
    assert by_name(which).budget[stream] == Answer(thought, rest, (), "stop")


def test_on_a_budget_forces_nothing_behind_a_spelled_end(on: Record) -> None:
    assert on.ends["budget, spelled"] == Answer("I should count.", SAID, (), "stop")


def test_on_a_budget_forces_nothing_into_a_call_that_ends_reasoning(on: Record) -> None:
    answer = on.ends["budget, call"]
    assert isinstance(answer, Answer), answer
    assert answer.reasoning.strip() == "I should look."
    assert [(name, json.loads(text)) for name, text in answer.calls] == [CALLED]


def test_off_the_end_that_a_budget_forces_takes_the_place_of_a_word(off: Record) -> None:
    spelled, call = off.ends["budget, spelled"], off.ends["budget, call"]
    assert isinstance(spelled, Answer) and isinstance(call, Answer)
    assert spelled.content != SAID
    assert [name for name, _ in call.calls] != [CALLED[0]] or json.loads(call.calls[0][1]) != CALLED[1]


@pytest.mark.parametrize("name", ["grammar, spelled", "grammar, whole"])
def test_on_the_grammar_holds_behind_every_end(on: Record, name: str) -> None:
    answer = on.ends[name]
    assert isinstance(answer, Answer), answer
    assert (answer.reasoning, answer.content) in {("I should count.", "yes"), ("I should count.", "no")}


def test_off_the_grammar_is_not_switched_on_behind_a_spelled_end(off: Record) -> None:
    spelled, whole = off.ends["grammar, spelled"], off.ends["grammar, whole"]
    assert isinstance(spelled, Answer) and isinstance(whole, Answer)
    assert spelled.content == SAID
    assert whole.content in {"yes", "no"}


def test_the_overlay_is_active_in_every_process(on: Record) -> None:
    working = {pid: command for pid, command in on.processes.items() if "resource_tracker" not in command}
    missing = {"api_server", "EngineCore", "Worker"}
    missing -= {name for name in missing if any(name in command for command in working.values())}
    assert not missing, working
    reports = {report["pid"]: report for report in on.status}
    assert set(reports) == set(working)
    for report in reports.values():
        assert report["way"] == "startup"
        assert report["problems"] == []
        assert report["engine"]["version"].startswith("0.32.0")
        states = {patch["id"]: (patch["verdict"], patch["state"]) for patch in report["patches"]}
        # Only the API server parses answers; in the others it may be loaded, and is out of path.
        state = "applied" if report["role"] == "API server" else "out of path"
        assert states["spelled_markers"] == ("apply", state)
        assert {verdict for verdict, _ in states.values()} <= {"apply", "native", "disabled"}
    server = next(pid for pid, command in working.items() if "api_server" in command)
    states = {patch["id"]: patch["state"] for patch in reports[server]["patches"]}
    assert {i: states[i] for i in USED} == dict.fromkeys(USED, "applied")


def test_off_leaves_nothing_in_any_process(on: Record, off: Record, without: Record) -> None:
    assert "engine_overlay.importer" in on.loaded
    # The engine itself imports the entry point of its plug-in group: the start-up module, which looks at the switch.
    assert off.loaded <= {"_engine_overlay_startup"}
    assert off.status == []
    assert without.loaded == frozenset()


@pytest.mark.every
@pytest.mark.parametrize("stream", STREAMED)
def test_a_budget_for_a_parser_without_markers_is_refused_by_the_stock_engine(
    other_parser: Callable[[str], dict[bool, Answer | str]], stream: bool
) -> None:
    assert "reasoning_config is not configured" in other_parser("off")[stream]


@pytest.mark.every
@pytest.mark.parametrize("stream", STREAMED)
def test_a_budget_for_a_parser_without_markers_is_kept_with_the_overlay(
    other_parser: Callable[[str], dict[bool, Answer | str]], speller: Speller, stream: bool
) -> None:
    ids = speller.ids(THOUGHT, "whole")
    answer = other_parser("on")[stream]
    assert isinstance(answer, Answer), answer
    # This parser hands everything on as content; the token after the budget has given way to the forced end.
    assert answer.content.replace("</think>", "") == speller.text(ids[: BUDGET - 1]) + speller.text(ids[BUDGET:])


def _common(some: list[str], others: list[str]) -> bool:
    return not set(some).isdisjoint(others)


def test_the_doctor_reads_the_flags_of_the_running_server(on: Record) -> None:
    server = on.doctor["server"]
    assert (server["engine"], server["model"]) == ("vllm", server["words"][1])
    assert server["words"][server["words"].index("--tool-call-parser") + 1] == "qwen3_coder"
    findings = on.doctor["findings"]
    assert [f for f in findings if f["level"] == "problem"] == []
    well = {f["subject"] for f in findings if f["level"] == "ok"}
    assert {"engine", "overlay", "flags", "tokenizer", "budget", "others"} <= well
