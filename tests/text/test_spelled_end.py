"""SpelledEnd: the pieces do not depend on tokens or deltas, nothing is lost, nothing is invented."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from engine_overlay.text.quoting import is_quoted
from engine_overlay.text.spelled_end import LastText, Marker, Piece, SpelledEnd

END, START = Marker("</think>", 1), Marker("<think>", 2)
SPECIAL = {END.id: END.text, START.id: START.text}


@dataclass
class Tokens:
    """A byte-level vocabulary that grows as it is used; ids below 10 are special tokens."""

    hidden: frozenset[int] = frozenset()  # special tokens that are left out of the text
    pieces: dict[int, bytes] = field(default_factory=lambda: {i: t.encode() for i, t in SPECIAL.items()})

    def id(self, piece: bytes) -> int:
        for known, other in self.pieces.items():
            if known >= 10 and other == piece:
                return known
        self.pieces[len(self.pieces) + 10] = piece
        return len(self.pieces) + 9

    def decode(self, ids: list[int], skip_special: bool) -> str:
        kept = (i for i in ids if not (skip_special and i in self.hidden))
        return b"".join(self.pieces[i] for i in kept).decode("utf-8", "replace")


Delta = tuple[str, list[int]]


def run(tokens: Tokens, deltas: list[Delta], start: Marker | None = None) -> tuple[SpelledEnd, list[Piece]]:
    """Feed a stream as a caller does: what was handed on comes back as ``before``."""
    watcher = SpelledEnd(END, tokens.decode, start, cut_special=True)
    out: list[Piece] = []
    before, before_ids = "", []
    for n, (text, ids) in enumerate(deltas):
        if watcher.passes(text, ids):
            pieces = [Piece(text, ids)]
        else:
            pieces = watcher.feed(text, ids, before, before_ids, last=n == len(deltas) - 1)
        out += pieces
        before += "".join(p.text for p in pieces)
        before_ids = before_ids + [i for p in pieces for i in p.ids]
    assert not watcher.holding
    return watcher, out


def split(pieces: list[Piece], marker: Marker) -> tuple[str, str] | None:
    """(text before, text after) the first piece that is ``marker`` and nothing else."""
    for n, piece in enumerate(pieces):
        if piece == Piece(marker.text, [marker.id]):
            return "".join(p.text for p in pieces[:n]), "".join(p.text for p in pieces[n + 1 :])
    return None


def stream(tokens: Tokens, ids: list[int], sizes: list[int], lag: int = 0) -> list[Delta]:
    """Deltas as an incremental detokenizer gives them: whole characters, ``lag`` of them kept to the end."""
    deltas, sent, at = [], 0, 0
    while at < len(ids):
        size = sizes.pop(0) if sizes else 1
        chunk, at = ids[at : at + size], at + size
        shown = b"".join(tokens.pieces[i] for i in ids[:at] if i not in tokens.hidden)
        text = shown.decode("utf-8", "ignore")
        limit = len(text) if at >= len(ids) else max(sent, len(text) - lag)
        deltas.append((text[sent:limit], chunk))
        sent = limit
    return deltas


SEGMENTS = st.sampled_from(
    ["a", "Z", " ", "\n", "`", '"', ".", "<", "</", "think", ">", "</think>", "</think>", "<think>"]
    + ["</thin", "\u00e9", "\U0001f642", "```", "x "]
)


@st.composite
def answers(draw: st.DrawFn) -> tuple[list[tuple[str, bool]], Tokens, list[int], list[int]]:
    """(segments with whether each is a special token, tokens, ids, delta sizes)."""
    chosen = draw(st.lists(SEGMENTS, max_size=14))
    segments = [(s, s == END.text and draw(st.integers(0, 3)) == 0) for s in chosen]
    tokens, ids, plain = Tokens(), [], b""

    def spell(data: bytes) -> None:
        while data:
            size = draw(st.integers(1, min(9, len(data))))
            ids.append(tokens.id(data[:size]))
            data = data[size:]

    for text, special in segments:
        if special:
            spell(plain)
            plain = b""
            ids.append(END.id)
        else:
            plain += text.encode()
    spell(plain)
    return segments, tokens, ids, draw(st.lists(st.integers(1, 7), max_size=20))


def expected(segments: list[tuple[str, bool]]) -> int | None:
    """Where reasoning ends, from the whole text and the places of the special tokens alone."""
    text, special, at = "".join(t for t, _ in segments), set(), 0
    for part, is_special in segments:
        if is_special:
            special.add(at)
        at += len(part)
    at = text.find(END.text)
    while at >= 0:
        if at in special or not is_quoted(text[:at], text[at + len(END.text) :] or None, whole=True):
            return at
        at = text.find(END.text, at + len(END.text))
    return None


@settings(max_examples=400, deadline=None)
@given(answers())
@example(([("a", False), ("</think>", False)], (t := Tokens()), [t.id(b"a</"), t.id(b"think>")], [2]))
def test_same_pieces_however_it_was_tokenised_and_cut(answer: tuple) -> None:
    segments, tokens, ids, sizes = answer
    text = "".join(t for t, _ in segments)
    deltas = stream(tokens, ids, list(sizes))
    watcher, pieces = run(tokens, deltas)
    assert "".join(p.text for p in pieces) == text, "text was lost, invented or reordered"
    where = expected(segments)
    assert watcher.done is (where is not None)
    if where is None:
        assert [i for p in pieces for i in p.ids] == ids
    else:
        assert split(pieces, END) == (text[:where], text[where + len(END.text) :])
        specials = [i for i in ids if i == END.id]
        kept = [i for p in pieces for i in p.ids if i == END.id]
        assert len(kept) == len(specials) + watcher.found, "a special token was lost or invented"
        after = [i for p in pieces for i in p.ids]
        assert set(after) <= set(ids) | {END.id}


@settings(max_examples=200, deadline=None)
@given(answers(), st.integers(1, 10))
def test_text_that_lags_its_ids_is_never_lost(answer: tuple, lag: int) -> None:
    segments, tokens, ids, sizes = answer
    _, pieces = run(tokens, stream(tokens, ids, list(sizes), lag))
    assert "".join(p.text for p in pieces) == "".join(t for t, _ in segments)


def spelled(tokens: Tokens, *pieces: str) -> list[int]:
    return [tokens.id(p.encode()) for p in pieces]


@pytest.mark.parametrize("lag", range(13))
def test_a_special_token_waits_for_its_text(lag: int) -> None:
    """A stop string holds text back: the id of the end comes first, and the cut must wait for the text."""
    tokens = Tokens()
    ids = [*spelled(tokens, "Hm", "."), END.id, *spelled(tokens, "\n\n", "Four", ".")]
    _, pieces = run(tokens, stream(tokens, ids, [], lag))
    assert split(pieces, END) == ("Hm.", "\n\nFour.")
    assert [i for p in pieces for i in p.ids] == ids


def test_a_special_token_that_is_left_out_of_the_text_passes_at_once() -> None:
    tokens = Tokens(hidden=frozenset({END.id}))
    ids = [*spelled(tokens, "Hm", "."), END.id, *spelled(tokens, "Four", ".")]
    watcher = SpelledEnd(END, tokens.decode)
    assert watcher.passes("Hm.", ids[:2])
    assert watcher.feed("", [END.id], "Hm.", ids[:2]) == [Piece("", [END.id])]
    assert watcher.done
    assert not watcher.found


def test_a_delta_with_the_special_token_passes_whole_unless_it_mentions_the_marker_too() -> None:
    tokens = Tokens()
    a, b, tick = spelled(tokens, "a", "b", "`")
    delta = Piece("a</think>b", [a, END.id, b])
    assert SpelledEnd(END, tokens.decode).feed(*delta, "", []) == [delta]
    spelt = spelled(tokens, "</", "think", ">")
    mention = SpelledEnd(END, tokens.decode)
    assert mention.feed("`</think>`a</think>b", [tick, *spelt, tick, a, END.id, b], "", []) == [
        Piece("`</think>`a", [tick, *spelt, tick, a]),
        Piece(END.text, [END.id]),
        Piece("b", [b]),
    ]


def test_ids_that_lead_the_text_are_handed_on_early() -> None:
    """As without the watcher: an id that other code waits for must not stay behind with a held character."""
    tokens = Tokens()
    tool = tokens.id(b"<tool_call>")
    first = tokens.id(b"Hm")
    watcher = SpelledEnd(END, tokens.decode)
    assert watcher.feed("Hm<", [first, tool], "", []) == [Piece("Hm", [first, tool])]
    assert watcher.feed("tool", [], "Hm", [first, tool]) == [Piece("<", []), Piece("tool", [])]


def test_holds_no_more_than_may_become_the_marker() -> None:
    tokens = Tokens()
    watcher = SpelledEnd(END, tokens.decode)
    first, second = spelled(tokens, "a <b </th", "e")
    assert watcher.feed("a <b </th", [first], "", []) == [Piece("a <b ", [])]
    assert watcher.holding
    assert watcher.feed("e", [second], "a <b ", []) == [Piece("</th", [first]), Piece("e", [second])]
    assert not watcher.holding


def test_a_mention_is_settled_with_one_more_character() -> None:
    tokens = Tokens()
    watcher = SpelledEnd(END, tokens.decode)
    ids = spelled(tokens, "say `", "</think>", "`")
    assert watcher.passes("say `", ids[:1])
    assert watcher.feed("</think>", ids[1:2], "say `", ids[:1]) == []
    assert watcher.feed("`", ids[2:], "say `", ids[:1]) == [Piece("</think>", ids[1:2]), Piece("`", ids[2:])]
    assert not watcher.done


def test_ids_are_cut_with_the_text() -> None:
    tokens = Tokens()
    ids = spelled(tokens, "So", ".", "</", "think", ">", "\n", "<tool_call>", "{")
    watcher = SpelledEnd(END, tokens.decode)
    assert watcher.feed("So.</think>\n<tool_call>{", ids, "", []) == [
        Piece("So.", ids[:2]),
        Piece(END.text, [END.id]),
        Piece("\n<tool_call>{", ids[5:]),
    ]


@pytest.mark.parametrize("size", [1, 2, 3, 9])
@pytest.mark.parametrize("lead", ["", "\n"])
def test_a_spelled_start_counts_at_the_beginning_only(lead: str, size: int) -> None:
    tokens = Tokens()
    ids = spelled(tokens, *filter(None, [lead]), "<", "think", ">", "a", "<think>", "</", "think", ">", "b")
    watcher, pieces = run(tokens, stream(tokens, ids, [size] * 9), START)
    assert split(pieces, START) == (lead, "a<think></think>b")
    assert split(pieces, END) == (lead + "<think>a<think>", "b")


def test_no_start_no_hold() -> None:
    watcher = SpelledEnd(END, Tokens().decode, START)
    assert watcher.feed("Hi", [10], "", []) == [Piece("Hi", [10])]
    assert watcher.passes(" there", [11])


def test_last_text_is_text() -> None:
    assert LastText("a") == "a" and isinstance("b" + LastText("a"), str)
