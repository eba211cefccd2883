"""What reads answers does work in proportion to their length, whatever a model writes, and wherever it writes it."""

from __future__ import annotations

import pytest

from bench import hostile
from engine_overlay.text import candidates, spelled_end
from engine_overlay.text.formats import STOCK_CALLS, STOCK_REASONING, compose
from engine_overlay.text.in_step import InStep
from engine_overlay.text.parser import TextParser
from engine_overlay.text.spelled_end import Marker, SpelledEnd
from engine_overlay.text.vocab import Vocab
from engine_overlay.text.whole import Whole
from engine_overlay.verify.tokens import DEFAULT_SPECIAL, CaseTokenizer
from tests.conftest import EVERY
from tests.text.effort import growth

PLACES = {
    "qwen3": ("reasoning", "content", "name", "behind"),
    "hermes": ("content",),
    "kimi_k2": ("content", "behind"),
}
PER_DELTA = (1, 0)
"""Tokens in a delta; 0 for all in one."""

LIMIT = 4.2
"""Times that three times the text may cost: 3 is linear, 9 is quadratic."""


class Answer:
    """A hostile text in deltas, with its tokenizer."""

    def __init__(self, shape, place, unit, size):
        self.tokens = hostile.answer(shape, place, unit, size)
        pieces = [token.text.encode() for token in self.tokens]
        self.tokenizer = CaseTokenizer(DEFAULT_SPECIAL, shape.markers, dict.fromkeys(pieces))
        self.ids = [self.tokenizer.id_of(piece) for piece in pieces]
        self.text = "".join(token.text for token in self.tokens)

    def decode(self, ids, skip_special=False):
        return self.tokenizer.decode(list(ids))

    def deltas(self, per_delta):
        width = per_delta or len(self.tokens)
        for at in range(0, len(self.tokens), width):
            text = "".join(token.text for token in self.tokens[at : at + width])
            yield text, self.ids[at : at + width], at + width >= len(self.tokens)


def parsed(shape, answer, deltas):
    form = compose(STOCK_REASONING.get(shape.reasoning), STOCK_CALLS[shape.tools])
    vocab = Vocab(form, answer.tokenizer.get_vocab, answer.decode)
    parser = TextParser(form, vocab, tools=[{"type": "function", "function": hostile.TOOL}])
    return sum(len(parser.feed(text, ids, last=last)) for text, ids, last in deltas)


def growing(shape, place, size, work, per_delta):
    """Kind of text -> times that three times as much of it costs, where that is too much."""
    found = {}
    for number, (kind, unit) in enumerate(hostile.texts(shape).items()):
        if not EVERY and number % 2 == (per_delta == 0):
            # Half of them token by token, the others in one delta.
            continue
        answers = {n: Answer(shape, place, unit, n) for n in (size, 3 * size)}
        made = {n: list(answer.deltas(per_delta)) for n, answer in answers.items()}
        found[kind] = round(growth(lambda n, answers=answers, made=made: work(answers[n], made[n]), size), 1)
    return {kind: times for kind, times in found.items() if times > LIMIT}


@pytest.mark.parametrize("per_delta", PER_DELTA)
@pytest.mark.parametrize(("name", "place"), [(name, place) for name, places in PLACES.items() for place in places])
def test_own_parser(name, place, per_delta, monkeypatch):
    # What a block has said so far is looked at again at each candidate, up to this many characters.
    monkeypatch.setattr(candidates, "KEEP", 200)
    shape = hostile.SHAPES[name]
    # A head is looked at in some hundred characters: shorter texts say nothing.
    assert not growing(shape, place, 900, lambda answer, deltas: parsed(shape, answer, deltas), per_delta)


class Said(list):
    """What was handed on, as the engine keeps it: no string, so that only what is read of it counts."""

    def __getitem__(self, part):
        return "".join(super().__getitem__(part))


@pytest.mark.parametrize("per_delta", PER_DELTA)
def test_spelled_end(per_delta, monkeypatch):
    monkeypatch.setattr(spelled_end, "_SEEN", 50)

    def work(answer, deltas):
        decode = lambda ids, skip: answer.decode(ids)  # noqa: E731
        end, start = (Marker(text, answer.tokenizer.id_of(text.encode())) for text in ("</think>", "<think>"))
        watcher = SpelledEnd(end, decode, start)
        said, ids_said = Said(), []
        for text, ids, last in deltas:
            for piece in watcher.feed(text, ids, said, ids_said, last=last):
                said += piece.text
                ids_said += piece.ids

    shape = hostile.SHAPES["deepseek_r1"]
    assert not growing(shape, "reasoning", 600, work, per_delta)


@pytest.mark.parametrize("late", [0, 5, 40])
def test_in_step(late):
    def work(answer, deltas):
        stream, given = InStep(answer.decode), 0
        for _, ids, last in deltas:
            work.reached += len(answer.decode(ids))
            until = len(answer.text) if last else max(given, work.reached - late)
            stream.feed(answer.text[given:until], ids, last=last)
            given = until
        work.reached = 0

    work.reached = 0
    assert not growing(hostile.SHAPES["qwen3"], "content", 600, work, 1)


def test_ids_of_a_whole_answer():
    def work(answer, deltas):
        whole = Whole(answer.text, answer.ids, answer.decode)
        assert whole.ids_of(answer.text[len(answer.text) // 2 :]) is not None

    assert not growing(hostile.SHAPES["qwen3"], "content", 2000, work, 0)
