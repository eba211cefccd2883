"""Special tokens are found at their own place, whatever the text around them mentions."""

from hypothesis import given
from hypothesis import strategies as st

from engine_overlay.text import places

END, TOOL = "</think>", "<tool_call>"


def test_a_mention_before_and_behind_is_not_taken():
    parts = [(f"a {END} b", False), (END, True), (f"\ufffd {END}", False)]
    text = f"a {END} b{END}\U0001f600 {END}"
    assert places.of_markers(parts, text) == [len(f"a {END} b")]


def test_text_that_the_parts_do_not_tell_is_passed_over():
    assert places.of_markers([("b", False), (END, True), ("c", False)], f"held {END} back b{END}c") == [20]


def test_a_marker_that_is_not_there_gives_nothing():
    assert places.of_markers([("a", False), (END, True)], "a") is None
    assert places.of_markers([("a", False)], "a") is None


PART = st.one_of(
    st.sampled_from(["text", " ", f"say {END} now", f"`{TOOL}`", "caf\u00e9"]).map(lambda text: (text, False)),
    st.sampled_from([END, TOOL]).map(lambda text: (text, True)),
)


@given(st.lists(PART, min_size=1, max_size=12))
def test_the_place_found_is_the_true_one_though_other_text_decodes_wrongly(parts):
    text, at, true = "", 0, []
    for part, special in parts:
        true += [at] if special else []
        text += part
        at += len(part)
    # What is no marker decodes to something else, as the bytes of a character do.
    told = [(part.replace("\u00e9", "\ufffd\ufffd"), special) for part, special in parts]
    assert (places.of_markers(told, text) or []) == true
