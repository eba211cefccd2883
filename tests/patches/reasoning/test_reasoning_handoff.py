"""The hand-off from reasoning: parse_delta without an engine, and what a client of each release gets."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from engine_overlay.engines import Engine
from engine_overlay.patches.reasoning import reasoning_handoff as patch
from engine_overlay.text.spelled_end import Piece
from engine_overlay.verify import releases
from tests.matrix import environment
from tests.patches.reasoning import by_ids, gate
from tests.patches.reasoning.by_ids import END, ById, Message, Words

TARGET = patch.PATCH.targets[0].path


class Host:
    """As much of ``DelegatingParser`` as the patch relies on: its stream state and its gate by ids."""

    def __init__(self, reasoning: Any, tools: Any = None) -> None:
        self.model_tokenizer = reasoning.model_tokenizer
        self._reasoning_parser, self._tool_parser = reasoning, tools
        self._stream_state = SimpleNamespace(
            reasoning_ended=False, prompt_reasoning_checked=False, previous_text="", previous_token_ids=[]
        )
        self.calls: list[tuple[str, list[int], bool]] = []

    def is_reasoning_end(self, ids: list[int]) -> bool:
        return self._reasoning_parser.is_reasoning_end(ids)


def stock(
    self: Host, text: str, ids: list[int], request: Any, prompt: list[int] | None = None, *, finished: bool
) -> Message | None:
    state = self._stream_state
    self.calls.append((text, ids, finished))
    if not state.prompt_reasoning_checked and prompt is not None:
        state.prompt_reasoning_checked = True
        state.reasoning_ended = self.is_reasoning_end(prompt)
    if state.reasoning_ended:
        return Message(content=text)
    before, before_ids = state.previous_text, state.previous_token_ids
    state.previous_text, state.previous_token_ids = before + text, before_ids + ids
    message = self._reasoning_parser.extract_reasoning_streaming(
        before, state.previous_text, text, before_ids, state.previous_token_ids, ids
    )
    state.reasoning_ended = END in ids
    return message


def patched(version: str = "0.33.0") -> Callable[..., Message | None]:
    return patch.build(Engine("vllm", version, None, Path()), {TARGET: stock})[TARGET]


def play(host: Host, deltas: list[Piece], prompt: list[int] | None = None, version: str = "0.33.0") -> tuple[str, str]:
    parse, out = patched(version), Message("", "")
    for n, (text, ids) in enumerate(deltas):
        message = parse(host, text, ids, None, prompt, finished=n == len(deltas) - 1)
        if message is not None:
            out.reasoning += message.reasoning or ""
            out.content += message.content or ""
    return out.reasoning, out.content


@pytest.fixture
def host() -> Host:
    return Host(ById(Words()))


@pytest.mark.parametrize("size", [1, 2, 3, 8])
def test_a_spelled_end_ends_reasoning(host: Host, size: int) -> None:
    deltas = host.model_tokenizer.deltas("Hm", ".", "</", "think", ">", "\n", "Four", ".")
    parts = [deltas[n : n + size] for n in range(0, 8, size)]
    joined = [Piece("".join(p.text for p in part), [i for p in part for i in p.ids]) for part in parts]
    assert play(host, joined) == ("Hm.", "\nFour.")
    assert [finished for *_, finished in host.calls].count(True) == 1
    assert host.calls[-1][2] is True


def test_a_healthy_stream_passes_delta_by_delta(host: Host) -> None:
    deltas = host.model_tokenizer.deltas("Hm", ". ", "So", "</think>", "Four", " <", "b", ">")
    assert play(host, deltas, [by_ids.START]) == ("Hm. So", "Four <b>")
    assert [(text, ids) for text, ids, _ in host.calls] == [(text, ids) for text, ids in deltas]


def test_what_is_held_comes_with_the_last_delta(host: Host) -> None:
    assert play(host, host.model_tokenizer.deltas("Hm ", "</", "thi")) == ("Hm </thi", "")


def test_an_empty_last_delta_is_still_handed_on(host: Host) -> None:
    deltas = [*host.model_tokenizer.deltas("Hm", "</", "think", ">", "Four"), Piece("", [])]
    assert play(host, deltas) == ("Hm", "Four")
    assert host.calls[-1] == ("", [], True)


def test_nothing_is_cut_when_the_prompt_has_ended_reasoning(host: Host) -> None:
    deltas = host.model_tokenizer.deltas("<b>", "</", "think", ">", "x")
    assert play(host, deltas, [by_ids.START, END]) == ("", "<b></think>x")
    assert len(host.calls) == len(deltas)


class OfEngine(ById):
    engine_based_streaming = True


@pytest.mark.parametrize(
    ("version", "tools", "watched"),
    [
        ("0.33.0", SimpleNamespace(engine_based_streaming=False), False),
        ("0.25.1", SimpleNamespace(engine_based_streaming=False), True),
        ("0.25.1", SimpleNamespace(engine_based_streaming=True), False),
        ("0.25.1", None, False),
    ],
)
def test_parsers_of_the_engine_are_left_to_it_but_for_legacy_tools_on_old_releases(
    version: str, tools: Any, watched: bool
) -> None:
    host = Host(OfEngine(Words()), tools)
    play(host, host.model_tokenizer.deltas("Hm", "</", "think", ">", "x"), version=version)
    assert any(ids == [END] for _, ids, _ in host.calls) is watched


def test_an_unknown_body_is_refused(tmp_path: Path) -> None:
    source = (
        "class StreamState:\n    x = 1\n"
        "class DelegatingParser:\n    def parse_delta(self):\n        return 1\n"
        "    def _in_reasoning_phase(self):\n        return 1\n"
    )
    found = gate.ask(tmp_path, patch, "0.33.0", {"parser.abstract_parser": source})
    assert (found.code, "parse_delta is unknown" in found.reason) == ("drifted", True)
    assert gate.ask(tmp_path, patch, "0.22.1", {"parser.abstract_parser": source}).code == "native"


# -- on real releases

RELEASES = (
    "vllm-0.18.1",
    "vllm-0.19.1",
    "vllm-0.20.2",
    "vllm-0.21.0",
    "vllm-0.22.1",
    "vllm-0.23.0",
    "vllm-0.24.0",
    "vllm-0.33.0",
    "aphrodite_engine-0.20.0",
    "aphrodite_engine-0.21.0",
    "aphrodite_engine-0.24.1",
)
"""One of each way in which the serving code and parse_delta have called reasoning parsers."""

engine = pytest.mark.engine


@cache
def seen(label: str) -> dict[str, Any]:
    out = releases.cache() / "results" / f"handoff-{label}.json"
    out.parent.mkdir(parents=True, exist_ok=True)
    sources = releases.fetch(releases.named(label))
    command = ["-m", "tests.patches.reasoning.handoff_on_engine", str(out)]
    environment.run(command, sources, overlay=True, check=True)
    return json.loads(out.read_text(encoding="utf-8"))


def each(label: str, *kinds: str) -> list[tuple[str, str, dict[str, Any], dict[str, Any]]]:
    """(parser, variant, ways with the patches, the answer to a healthy model without them)."""
    on, off = seen(label)["on"], seen(label)["off"]
    found = []
    for parser, variants in on.items():
        for variant, ways in variants.items():
            kind, _, how = variant.partition(" ")
            # A parser may tell its opener only with reasoning_strings; without it there is nothing to compare with.
            healthy = off[parser].get(f"{kind} atomic" if how else variant)
            if kind in kinds and how != "atomic" and healthy is not None:
                found.append((parser, variant, ways, healthy["1"]))
    assert found
    return found


@engine
@pytest.mark.parametrize("label", RELEASES)
def test_the_patches_of_the_release_are_in(label: str) -> None:
    states = {i: s for i, s in seen(label)["states"].items() if s}
    inline = {"reasoning_handoff_inline", "last_delta_chat", "last_delta_responses"}
    assert states in ({"reasoning_handoff": "applied"}, dict.fromkeys(inline, "applied"))
    assert len(seen(label)["on"]) >= 7, "reasoning parsers that look at ids"


@engine
@pytest.mark.parametrize("label", RELEASES)
def test_a_spelled_end_is_as_good_as_its_token_however_it_is_cut(label: str) -> None:
    for parser, variant, ways, healthy in each(label, "plain", "joined"):
        for way, answer in ways.items():
            assert answer == healthy, f"{parser} {variant} {way}"


@engine
@pytest.mark.parametrize("label", RELEASES)
def test_a_spelled_start_is_as_good_as_its_token(label: str) -> None:
    for parser, variant, ways, healthy in each(label, "started"):
        assert ways["1"] == healthy, f"{parser} {variant}"


@engine
@pytest.mark.parametrize("label", RELEASES)
def test_the_tool_parser_gets_what_follows_a_spelled_end(label: str) -> None:
    for parser, variant, ways, healthy in each(label, "call"):
        assert ways["1"] == healthy, f"{parser} {variant}"


@engine
@pytest.mark.parametrize("label", RELEASES)
def test_without_the_patches_a_spelled_end_is_not_seen(label: str) -> None:
    missed = [p for p, v in seen(label)["off"].items() if v["plain spelled"]["1"] != v["plain atomic"]["1"]]
    assert "deepseek_r1" in missed


@engine
@pytest.mark.parametrize("label", RELEASES)
def test_mentions_and_look_alikes_stay_as_they_are(label: str) -> None:
    for parser, variant, ways, stock_answer in each(label, "mention", "prefix"):
        assert ways["1"] == stock_answer, f"{parser} {variant}"


@engine
@pytest.mark.parametrize("label", RELEASES)
def test_a_stream_that_stops_inside_the_marker_loses_nothing(label: str) -> None:
    for parser, variant, ways, stock_answer in each(label, "cut"):
        for way, answer in ways.items():
            assert answer == stock_answer, f"{parser} {variant} {way}"


@engine
@pytest.mark.parametrize("label", RELEASES)
def test_responses_see_a_spelled_end_too(label: str) -> None:
    texts = {"response.reasoning_text.delta": "Hm.", "response.output_text.delta": "\n\nFour."}
    assert seen(label)["responses"] == {"atomic": texts, "spelled": texts}
