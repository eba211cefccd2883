"""Text and ids come out cut at the same token boundary, complete and in order, and healthy streams are not touched."""

from hypothesis import given
from hypothesis import strategies as st

from engine_overlay.text.in_step import InStep

WORDS = ["Hm", ".", "</think>", "\n\n", "<", "tool", "_call", ">", " x", "\u00e9", "<tool_call>", "abcdefgh"]
SPECIAL = 99
"""The id of a token that is never part of the text, as the end of a sequence."""


def decode(ids, skip):
    return "".join(("" if skip else "<eos>") if i == SPECIAL else WORDS[i] for i in ids)


def deltas(ids, sizes, holdback, eos):
    """(text, ids, last) as a detokenizer gives them that holds ``holdback`` characters back."""
    text, sent, at = decode(ids, True), 0, 0
    groups = []
    while at < len(ids):
        size = sizes[len(groups) % len(sizes)]
        groups.append(ids[at : at + size])
        at += size
    done = 0
    for n, group in enumerate(groups):
        done += len(decode(group, True))
        last = n == len(groups) - 1
        until = len(text) if last else max(sent, done - holdback)
        yield text[sent:until], [*group, SPECIAL] if last and eos else group, last
        sent = until


STREAMS = st.tuples(
    st.lists(st.integers(0, len(WORDS) - 1), min_size=1, max_size=40),
    st.lists(st.integers(1, 5), min_size=1, max_size=4),
    st.integers(0, 16),
    st.booleans(),
)


@given(STREAMS)
def test_every_piece_is_exactly_its_tokens_and_nothing_is_lost(stream):
    ids, sizes, holdback, eos = stream
    mine = InStep(decode)
    out = [mine.feed(text, group, last=last) for text, group, last in deltas(ids, sizes, holdback, eos)]
    pieces = [piece for piece in out if piece is not None]
    assert out[-1] is not None
    assert "".join(text for text, _ in pieces) == decode(ids, True)
    assert [i for _, group in pieces for i in group] == ids + [SPECIAL] * eos
    for text, group in pieces:
        assert text == decode(group, True)


@given(STREAMS)
def test_a_stream_that_does_not_lag_is_passed_on_as_it_is(stream):
    ids, sizes, _, eos = stream
    mine = InStep(decode)
    for text, group, last in deltas(ids, sizes, 0, eos):
        assert mine.feed(text, group, last=last) == (text, group)
    assert mine.lags is False


def test_the_ids_of_the_stop_string_itself_are_not_handed_on():
    mine = InStep(decode)
    assert mine.feed("", [0], last=False) is None
    assert mine.feed("Hm", [1], last=False) == ("Hm", [0])
    # The stop string was "</think>": its text is cut off, its id has come.
    assert mine.feed(".", [2], last=True) == (".", [1])


def test_a_text_that_its_ids_do_not_make_is_handed_on_whole():
    mine = InStep(decode)
    assert mine.feed("", [0], last=False) is None
    assert mine.feed("something else", [1, 2], last=True) == ("something else", [0, 1, 2])
