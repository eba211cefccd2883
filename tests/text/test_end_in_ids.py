"""Ends of reasoning in token ids: by what they say, in whatever tokens, at the right token, and cheaply."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from engine_overlay.text import end_in_ids
from engine_overlay.text.end_in_ids import Ended, EndInIds, NamesIn, Vocabulary
from engine_overlay.text.grammar import AnyName, Grammar, Role

END = "</think>"
ONLY_END = Grammar({(Role.REASONING, END): Role.CONTENT}, frozenset({(Role.REASONING, END)}), (), False)
WITH_CALLS = Grammar(
    {
        (Role.REASONING, END): Role.CONTENT,
        (Role.REASONING, "<tool_call>"): Role.PREAMBLE,
        (Role.CONTENT, "<tool_call>"): Role.PREAMBLE,
        (Role.PREAMBLE, "<function="): Role.NAME,
        (Role.PREAMBLE, "</tool_call>"): Role.CONTENT,
        (Role.NAME, ">"): Role.ARGS,
        (Role.ARGS, "<parameter="): Role.ARGS,
        (Role.ARGS, "</function>"): Role.BETWEEN,
        (Role.BETWEEN, "</tool_call>"): Role.CONTENT,
    },
    frozenset({(Role.REASONING, END)}),
    ("</parameter>",),
    False,
)


class Tokenizer:
    """Whatever piece is asked for is a token; counts what it decodes. Special ones are ``added``."""

    def __init__(self, added: Sequence[str] = (END, "<tool_call>", "</tool_call>")) -> None:
        self.pieces: list[bytes] = []
        self.added = added
        self.decoded = 0
        self.ids(*added)

    def ids(self, *pieces: str | bytes) -> list[int]:
        known = [piece.encode() if isinstance(piece, str) else piece for piece in pieces]
        self.pieces += [piece for piece in dict.fromkeys(known) if piece not in self.pieces]
        return [self.pieces.index(piece) for piece in known]

    def get_added_vocab(self) -> dict[str, int]:
        return {piece: self.pieces.index(piece.encode()) for piece in self.added}

    def decode(self, ids: list[int], skip_special_tokens: bool = False) -> str:
        self.decoded += len(ids)
        return b"".join(self.pieces[i] for i in ids).decode("utf-8", "replace")


def ended(
    *pieces: str | bytes, grammar: Grammar = ONLY_END, names: AnyName | None = None, step: int = 1
) -> Ended | None:
    tokenizer = Tokenizer()
    ids = tokenizer.ids(*pieces)
    markers = {m for (role, m), to in grammar.moves.items() if role is Role.REASONING}
    watch = EndInIds(Vocabulary(tokenizer, sorted(markers)), grammar, AnyName() if names is None else names)
    for upto in range(step, len(ids) + step, step):
        if found := watch.feed(ids[:upto]):
            return found
    return None


@pytest.mark.parametrize("step", [1, 2, 3, 100])
@pytest.mark.parametrize(
    ("pieces", "count", "rest"),
    [
        pytest.param(("Hm.", END, "Four"), 2, "", id="special"),
        pytest.param(("Hm.", "</", "think", ">", "Four"), 4, "", id="spelled"),
        pytest.param(("Hm.", *END, "Four"), 9, "", id="letter by letter"),
        pytest.param(("Hm", ".</", "think", ">{", "}"), 4, "{", id="in tokens that say more"),
        pytest.param(("Hm.", "</", "</", "think", ">", "Four"), 5, "", id="behind an aborted one"),
        pytest.param(("é".encode()[:1], "é".encode()[1:], ".", "</", "think", ">"), 6, "", id="behind a split letter"),
        pytest.param(("The tag `</", "think", ">` ends.", "</", "think", ">"), 6, "", id="behind a mention"),
        pytest.param(("I think ", "</think", ">", "\n"), 3, "", id="decided by what follows"),
    ],
)
def test_where_it_ends(pieces: tuple[str | bytes, ...], count: int, rest: str, step: int) -> None:
    found = ended(*pieces, step=step)
    assert found is not None
    assert (found.count, found.rest) == (count, rest)


@pytest.mark.parametrize("step", [1, 2, 100])
@pytest.mark.parametrize(
    "pieces",
    [
        pytest.param(("Hm", ".", "\n"), id="nothing"),
        pytest.param(("The tag `", "</", "think", ">", "` ends it."), id="inline code"),
        pytest.param(('The tag "', "</think", ">", '" ends it.'), id="quotes"),
        pytest.param(("```\n", "</think>\n", "```\n", "Hm."), id="a fence"),
        pytest.param(("if I print ", "</think", ">", " then it stops"), id="the middle of a sentence"),
        pytest.param(("a > b", "</think", "a>", "</", "thin", ">"), id="lookalikes"),
    ],
)
def test_what_is_no_end(pieces: tuple[str, ...], step: int) -> None:
    assert ended(*pieces, step=step) is None


CALL = ("\n", "<function=", "get_weather", ">", "\n", "<parameter=", "city", ">")


@pytest.mark.parametrize("opener", [("<tool_call>",), ("<", "tool_", "call>")], ids=["special", "spelled"])
def test_the_opener_of_a_call_to_a_tool_of_the_prompt_ends_it(opener: tuple[str, ...]) -> None:
    names = NamesIn(lambda: "You have the tools get_weather and get_time.")
    found = ended("Hm.", *opener, *CALL, grammar=WITH_CALLS, names=names)
    assert found is not None
    assert (found.count, found.rest, found.opener) == (1, "", True)


@pytest.mark.parametrize("opener", [("<tool_call>",), ("<", "tool_", "call>")], ids=["special", "spelled"])
@pytest.mark.parametrize(
    "rest", [CALL, (" opens a call.",), ("` opens a call.",)], ids=["another tool", "a sentence", "a quotation"]
)
def test_an_opener_without_such_a_call_ends_nothing(opener: tuple[str, ...], rest: tuple[str, ...]) -> None:
    names = NamesIn(lambda: "You have the tool get_time.")
    assert ended("The tag ", *opener, *rest, grammar=WITH_CALLS, names=names) is None


def test_the_engine_is_asked_of_special_tokens() -> None:
    tokenizer = Tokenizer(added=("<eom>", END))
    ids = tokenizer.ids("Hm.", "<eom>", "Four")
    asked: list[list[int]] = []

    def asks(block: Sequence[int]) -> bool:
        asked.append(list(block))
        return block[-1] == ids[1]

    watch = EndInIds(Vocabulary(tokenizer, [END]), ONLY_END, AnyName(), asks)
    found = watch.feed(ids)
    assert found is not None and found.special and found.count == 2
    assert asked == [ids[:2]]


def test_drafts_that_were_taken_back_are_forgotten() -> None:
    tokenizer = Tokenizer()
    hm, first, word, last, four = tokenizer.ids("Hm.", "</", "think", ">", "Four")
    watch = EndInIds(Vocabulary(tokenizer, [END]), ONLY_END, AnyName())
    assert watch.feed([hm, first]) is None
    copy = watch.copy()
    assert copy.feed([hm, first, word, last]) is not None
    assert watch.ended is None
    assert watch.feed([hm, first, word]) is None
    assert watch.feed([hm, four]) is None
    assert watch.feed([hm, four, first, word, last]) == Ended(5, "", 5)


def test_an_id_that_is_not_known_yet_is_waited_for() -> None:
    tokenizer = Tokenizer()
    ids = tokenizer.ids("Hm.", "</", "think", ">")
    watch = EndInIds(Vocabulary(tokenizer, [END]), ONLY_END, AnyName())
    assert watch.feed([*ids[:2], -1]) is None
    assert watch.feed(ids) == Ended(4, "", 4)


def test_tokens_that_cannot_end_it_are_decoded_once() -> None:
    tokenizer = Tokenizer()
    ids = tokenizer.ids(*(f"word{n % 50} " for n in range(5000)))
    vocabulary = Vocabulary(tokenizer, [END])
    watch = EndInIds(vocabulary, ONLY_END, AnyName())
    for upto in range(1, len(ids) + 1):
        watch.feed(ids[:upto])
    assert tokenizer.decoded == 50


def test_a_dismissed_end_is_not_found_again() -> None:
    tokenizer = Tokenizer()
    ids = tokenizer.ids("Hm.", "</", "think", ">", "\n", "So.", "</", "think", ">")
    watch = EndInIds(Vocabulary(tokenizer, [END]), ONLY_END, AnyName())
    assert watch.feed(ids[:5]) == Ended(4, "", 4)
    watch.dismiss()
    assert watch.feed(ids[:6]) is None
    assert watch.feed(ids) == Ended(9, "", 9)


def test_an_id_that_the_tokenizer_does_not_know_is_no_text() -> None:
    tokenizer = Tokenizer()
    ids = tokenizer.ids("Hm.", "</", "think", ">")
    watch = EndInIds(Vocabulary(tokenizer, [END]), ONLY_END, AnyName())
    assert watch.feed([ids[0], 10_000]) is None


def test_a_mention_costs_no_more_however_long_the_block_is(monkeypatch):
    monkeypatch.setattr(end_in_ids, "CONTEXT", 40)

    def decoded(mentions: int) -> int:
        tokenizer = Tokenizer()
        ids = tokenizer.ids(*["`", "</", "think", ">", "`", " and "] * mentions)
        watch = EndInIds(Vocabulary(tokenizer, [END]), ONLY_END, AnyName())
        for n in range(1, len(ids) + 1):
            assert watch.feed(ids[:n]) is None
        return tokenizer.decoded

    assert decoded(120) < 3.3 * decoded(40)
