"""reasoning_handoff_inline in front of a parser that looks at ids, called as the serving code does.

What a client of each real release gets is in test_reasoning_handoff.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from engine_overlay.engines import Engine
from engine_overlay.patches.reasoning import last_delta_chat, last_delta_responses
from engine_overlay.patches.reasoning import reasoning_handoff_inline as patch
from engine_overlay.text.spelled_end import LastText, Piece
from tests.patches.reasoning import by_ids, gate

TARGET = patch.PATCH.targets[0].path


@pytest.fixture(params=["0.19.0", "0.22.1"])
def parser(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[by_ids.ById]:
    engine = Engine("vllm", request.param, None, Path())
    original = by_ids.Base.__init__
    monkeypatch.setattr(by_ids.Base, "__init__", patch.build(engine, {TARGET: original})[TARGET])
    yield by_ids.ById(by_ids.Words())


class Caller:
    """The part of the serving code that asks the parser, for one choice of a stream with tools."""

    def __init__(self, parser: by_ids.ById) -> None:
        self.parser, self.text, self.ids = parser, "", []
        self.ended = False
        self.reasoning = self.content = ""
        self.content_ids: list[int] = []

    def delta(self, text: str, ids: list[int]) -> None:
        if self.ended:
            self.content += text
            self.content_ids += ids
            return
        before, before_ids = self.text, self.ids
        self.text, self.ids = before + text, before_ids + ids
        message = self.parser.extract_reasoning_streaming(before, self.text, text, before_ids, self.ids, ids)
        if self.parser.is_reasoning_end(ids):
            self.ended = True
            self.content_ids = self.parser.extract_content_ids(ids)
        if message is not None:
            self.reasoning += message.reasoning or ""
            self.content += message.content or ""


def play(parser: by_ids.ById, deltas: list[Piece]) -> Caller:
    caller = Caller(parser)
    for text, ids in deltas:
        caller.delta(text, ids)
    return caller


def grouped(deltas: list[Piece], size: int) -> list[Piece]:
    parts = (deltas[n : n + size] for n in range(0, len(deltas), size))
    return [Piece("".join(p.text for p in part), [i for p in part for i in p.ids]) for part in parts]


@pytest.mark.parametrize("size", [1, 2, 3, 4, 6])
def test_a_spelled_end_opens_the_gate(parser: by_ids.ById, size: int) -> None:
    words = parser.model_tokenizer
    deltas = words.deltas("Hm", ".", "</", "think", ">", "\n", "Four", ".", " Yes")
    caller = play(parser, grouped(deltas, size))
    assert caller.ended
    assert (caller.reasoning, caller.content) == ("Hm.", "\nFour. Yes")
    assert words.decode(caller.content_ids) == "\nFour. Yes"


@pytest.mark.parametrize("size", [1, 2, 3])
def test_a_special_end_is_as_before(parser: by_ids.ById, size: int) -> None:
    words = parser.model_tokenizer
    caller = play(parser, grouped(words.deltas("Hm", ".", "</think>", "Four", "."), size))
    assert (caller.ended, caller.reasoning, caller.content) == (True, "Hm.", "Four.")
    assert words.decode(caller.content_ids) == "Four."


def test_a_mention_stays_in_reasoning(parser: by_ids.ById) -> None:
    deltas = parser.model_tokenizer.deltas("Say ", "`", "</", "think", ">", "`", ".", "</think>", "Four")
    caller = play(parser, deltas)
    assert (caller.reasoning, caller.content) == ("Say `</think>`.", "Four")


def test_without_tools_content_goes_on(parser: by_ids.ById) -> None:
    """When there is no gate the parser is asked to the end, and must go on to see the end in the ids before."""
    caller = Caller(parser)
    for text, ids in parser.model_tokenizer.deltas("Hm", "</", "think", ">", "Fo", "ur", "</think>", "!"):
        caller.delta(text, ids)
        caller.ended = False
    assert (caller.reasoning, caller.content) == ("Hm", "Four!")


def test_choices_that_share_a_parser_do_not_mix(parser: by_ids.ById) -> None:
    words = parser.model_tokenizer
    streams = [
        words.deltas("A", "</", "think", ">", "a", "a"),
        words.deltas("B", " <", "b", "</think>", "b", "b"),
        words.deltas("C", "C", "</", "thin", "gs", "c"),
    ]
    callers = [Caller(parser) for _ in streams]
    for turn in zip(*streams, strict=True):
        for caller, (text, ids) in zip(callers, turn, strict=True):
            caller.delta(text, ids)
    assert [(c.reasoning, c.content) for c in callers] == [("A", "aa"), ("B <b", "bb"), ("CC</thingsc", "")]


@pytest.mark.parametrize("end", ["marked", "eos"])
def test_what_is_held_comes_with_the_last_delta(parser: by_ids.ById, end: str) -> None:
    words = parser.model_tokenizer
    first, second = words.deltas("Hm ", "</thi")
    last = Piece(LastText(second.text), second.ids) if end == "marked" else second
    tail = [] if end == "marked" else [Piece("", [by_ids.EOS])]
    assert play(parser, [first, last, *tail]).reasoning == "Hm </thi"


def test_a_stream_it_does_not_know_passes(parser: by_ids.ById) -> None:
    """Lists of ids that no earlier call has seen belong to a caller that works in another way."""
    message = parser.extract_reasoning_streaming("a", "a</", "</", [50], [50, 51], [51])
    assert message == by_ids.Message("</")


def test_the_class_keeps_its_name_and_is_derived_once(parser: by_ids.ById) -> None:
    assert type(parser).__name__ == "ById"
    assert isinstance(parser, by_ids.ById)
    again = type(parser)(by_ids.Words())
    assert type(again) is type(parser)


@pytest.mark.parametrize("module", [patch, last_delta_chat, last_delta_responses])
def test_an_unknown_body_is_refused(module, tmp_path: Path) -> None:
    sources: dict[str, str] = {}
    for target in (*module.PATCH.targets, *module.PATCH.reads):
        owner, _, name = target.qualname.rpartition(".")
        body = f"class {owner}:\n    def {name}(self):\n        return 1\n" if owner else f"class {name}:\n    x = 1\n"
        sources[target.module] = body
    found = gate.ask(tmp_path, module, "0.20.0", sources)
    assert found.code == "drifted"
    assert "is unknown" in found.reason
    assert gate.ask(tmp_path, module, "0.24.0", sources).code == "native"
