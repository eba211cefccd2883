"""A stream says the same however it is cut on its way."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine_overlay.canary.answer import MAX_RAW, Answer, Reader, message_of, read_whole
from tests.canary.broken import Reply
from tests.proxy.streams import cut_bytes

BODY = {"messages": [{"content": "Call it"}], "tools": [{"function": {"name": "record_nested"}}]}


def _read(pieces: list[bytes]) -> Answer:
    answer = Answer(True, status=200)
    reader = Reader(answer)
    for number, piece in enumerate(pieces):
        reader.feed(piece, number / 10)
    reader.close(9.0)
    return answer


def _told(answer: Answer) -> tuple:
    return answer.reasoning, answer.content, answer.calls, answer.finish, answer.usage, answer.odd


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(0, 10**6), max_size=30), st.sampled_from([b"\n", b"\r\n", b"\r"]))
def test_chunks_and_line_ends_do_not_matter(places: list[int], end: bytes) -> None:
    whole = b"".join(Reply(BODY).events())
    expected = _told(_read([whole]))
    assert expected[2][0].arguments and expected[5] == []
    assert _told(_read(cut_bytes(whole.replace(b"\n", end), places))) == expected


def test_streamed_and_whole_agree() -> None:
    whole = Answer(False, status=200)
    read_whole(whole, Reply(BODY).whole(), 1.0)
    streamed = _read(Reply(BODY).events())
    assert (whole.reasoning, whole.content, whole.calls, whole.finish) == _told(streamed)[:4]


def test_the_events_of_a_piece_are_shown_as_they_came() -> None:
    events = Reply({"messages": [{"content": "x"}]}).events()
    answer = _read(events)
    at = answer.content.index("as")
    assert answer.raw("content", at, at + 2).encode() in b"".join(events)


def test_evidence_is_bounded() -> None:
    event = b'data: {"choices":[{"delta":{"content":"' + b"x" * 1000 + b'"}}]}\n\n'
    answer = _read([event] * 2000)
    assert sum(map(len, answer.events.values())) <= MAX_RAW
    assert len(answer.content) == 2_000_000


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b'{"error": {"message": "no such\\n model"}}', "no such model"),
        (b'{"error": "Unauthorized"}', "Unauthorized"),
        (b'{"detail": [{"loc": 1}]}', '[{"loc": 1}]'),
        (b'{"object": "error", "message": "too long"}', "too long"),
        (b"<html>\n  Bad Gateway</html>", "<html> Bad Gateway</html>"),
    ],
)
def test_what_an_error_says(body: bytes, said: str) -> None:
    assert message_of(body) == said
