"""Which ids belong to the end of a finished answer's text."""

from hypothesis import given
from hypothesis import strategies as st

from engine_overlay.text.whole import Whole

PIECES = ("a", " b", "</think>", "\n\n", "é", "x")
WORDS = dict(enumerate(PIECES))
BYTES = {10: b"\xf0\x9f", 11: b"\x98\x80", 99: b"<|end|>"}


def decode(ids):
    raw = b"".join(BYTES.get(i) or WORDS[i].encode() for i in ids)
    return raw.decode("utf-8", "replace")


def test_an_end_token_without_text_is_left_out():
    assert Whole("a b", [0, 1, 99], decode).ids == [0, 1]


def test_the_whole_text_has_all_ids_and_no_other_text_has_any():
    whole = Whole("a</think> b", [0, 2, 1], decode)
    assert whole.ids_of("a</think> b") == [0, 2, 1]
    assert whole.ids_of("") == whole.ids_of("b a") == whole.ids_of("a") == []


def test_a_token_across_the_beginning_is_left_out():
    whole = Whole("a b", [0, 1], decode)
    assert whole.ids_of("b") == []
    assert Whole("a bx", [0, 1, 5], decode).ids_of("bx") == [5]


def test_the_tokens_of_a_first_character_may_be_left_out_but_nothing_behind_it():
    whole = Whole("a\U0001f600x</think>", [0, 10, 11, 5, 2], decode)
    assert whole.ids_of("\U0001f600x</think>") in ([10, 11, 5, 2], [5, 2])
    assert whole.ids_of("x</think>") == [5, 2]


@given(st.lists(st.sampled_from(sorted(WORDS)), min_size=1, max_size=30), st.data())
def test_the_ids_of_every_suffix_that_begins_at_a_token_decode_to_it(ids, data):
    start = data.draw(st.integers(0, len(ids) - 1))
    part = decode(ids[start:])
    assert decode(Whole(decode(ids), ids, decode).ids_of(part)) == part
