"""The splitter of server-sent events: no byte lost, cut where the standard says, however the network cuts."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine_overlay.proxy import sse
from tests.proxy.streams import cut_bytes

LINES = st.sampled_from(
    [b"data: {}", b"data:x", b"data", b": ping", b"event: a", b"id: 1", b"retry: 5", b"", "é€😀".encode()]
)
ENDS = st.sampled_from([b"\n", b"\r\n", b"\r"])
WIRE = st.lists(st.tuples(LINES, ENDS), max_size=30).map(lambda lines: b"".join(a + b for a, b in lines))
PLACES = st.lists(st.integers(0, 10_000), max_size=40)


def standard(data: bytes) -> list[bytes]:
    """The data of every event, read line by line as the standard tells."""
    found: list[bytes] = []
    lines: list[bytes] = []
    for line in data.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")[:-1]:
        name, _, value = line.partition(b":")
        if line == b"":
            if lines:
                found.append(b"\n".join(lines))
            lines = []
        elif name == b"data":
            lines.append(value.removeprefix(b" "))
    return found


def split(chunks: list[bytes]) -> tuple[list[bytes], bytes]:
    splitter = sse.Splitter()
    events = [event for chunk in chunks for event in splitter.feed(chunk)]
    return events, splitter.rest()


@settings(max_examples=600, deadline=None)
@given(WIRE, PLACES)
def test_any_chunking_gives_the_events_of_the_standard_and_every_byte(wire: bytes, places: list[int]) -> None:
    events, rest = split(cut_bytes(wire, places))
    assert b"".join(events) + rest == wire
    data = [d for event in events if (d := sse.data_of(event)) is not None]
    # An event that only the end of the stream closes is none for the standard, and is not read here.
    assert data == standard(wire)[: len(data)]
    assert len(standard(wire)) - len(data) <= (1 if rest else 0)


@settings(max_examples=200, deadline=None)
@given(WIRE)
def test_byte_by_byte_is_as_all_at_once(wire: bytes) -> None:
    def data(chunks: list[bytes]) -> list[bytes]:
        return [d for event in split(chunks)[0] if (d := sse.data_of(event)) is not None]

    assert data([wire[i : i + 1] for i in range(len(wire))]) == data([wire])


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
def test_new_data_keeps_the_other_lines_and_the_line_ends(end: bytes) -> None:
    event = end.join([b"\xef\xbb\xbfevent: a", b"data: {", b'data: "a":1}', b"id: 7", b"", b""])
    assert json.loads(sse.data_of(event)) == {"a": 1}
    new = sse.with_data(event, b'{"b":2}')
    assert new == end.join([b"\xef\xbb\xbfevent: a", b'data: {"b":2}', b"id: 7", b"", b""])
    assert sse.data_of(new) == b'{"b":2}'


def test_an_event_is_passed_on_with_its_last_byte() -> None:
    splitter = sse.Splitter()
    assert splitter.feed(b"data: 1\n") == []
    assert splitter.feed(b"\ndata: 2\r\n\r") == [b"data: 1\n\n", b"data: 2\r\n\r"]
    assert splitter.feed(b"\n: ping\n\n") == [b"\n: ping\n\n"]
    assert sse.is_comment(b"\n: ping\n\n") and not sse.is_comment(b"\n\n") and not sse.is_comment(b"data: :\n\n")


def test_an_endless_event_is_given_back_whole() -> None:
    splitter = sse.Splitter(100)
    splitter.feed(b"data: " + b"x" * 50)
    with pytest.raises(sse.TooLong):
        splitter.feed(b"y" * 50)
    assert splitter.rest() == b"data: " + b"x" * 50 + b"y" * 50
