"""Server-sent events as bytes: cut a stream into events, read one, put other data into one.

The cut keeps every byte: the events in their order are the stream. Events may come cut anywhere, several at once,
with any of the three line ends. Format: https://html.spec.whatwg.org/multipage/server-sent-events.html.
"""

from __future__ import annotations

import re

MAX_EVENT = 8 * 1024 * 1024
"""Bytes of one event, unless the options say otherwise; a longer one is not waited for."""

# Two line ends in a row. A carriage return before a line feed is never an end of its own.
_BLANK = re.compile(rb"(?:\r\n|\n|\r(?!\n)){2}")
_LINE = re.compile(rb"([^\r\n]*)(\r\n|\n|\r|\Z)")
_BOM = b"\xef\xbb\xbf"


class TooLong(Exception):
    """One event is longer than it may be."""


class Splitter:
    """Cuts a stream into events. Holds at most one unfinished event.

    A carriage return that ends a piece ends its event, since what follows may be long in coming; a line feed that
    then belongs to it begins the next event, where it is an empty line and means nothing.
    """

    def __init__(self, limit: int = MAX_EVENT) -> None:
        self._limit = limit
        # Grows in place: an event in a million pieces is copied a few times, not a million times.
        self._rest = bytearray()
        self._tail = b""

    @property
    def size(self) -> int:
        """Bytes of the event that is not complete."""
        return len(self._rest)

    def feed(self, data: bytes) -> list[bytes]:
        """The events that ``data`` completes, as they came. Raises TooLong; :meth:`rest` then has all bytes."""
        # The line ends that close an event are at most four bytes, so the last three of what came before may belong
        # to them. Nothing else of it is looked at again, however small the pieces are.
        before = len(self._tail)
        window = self._tail + data if before else data
        ends = [found.end() for found in _BLANK.finditer(window)] if b"\r" in window else _ends(window)
        events = []
        at = 0
        for end in ends:
            # No end lies in what came before: it would have been found there.
            piece = data[at : end - before]
            if self._rest:
                piece = bytes(self._rest) + piece
                self._rest.clear()
            events.append(piece)
            at = end - before
        left = data[at:] if at else data
        self._rest += left
        self._tail = (left if at else window)[-3:]
        if len(self._rest) > self._limit:
            self._rest[:0] = b"".join(events)
            raise TooLong
        return events

    def rest(self) -> bytes:
        """What has come of an event that is not complete; it is handed out once."""
        rest, self._rest, self._tail = bytes(self._rest), bytearray(), b""
        return rest


def _ends(window: bytes) -> list[int]:
    """Where events end that know line feeds only."""
    ends = []
    at = 0
    while (found := window.find(b"\n\n", at)) >= 0:
        at = found + 2
        ends.append(at)
    return ends


def data_of(event: bytes) -> bytes | None:
    """The data of an event; None when it has none, as a comment has."""
    if event.startswith(b"data: ") and event.find(b"\n") == len(event) - 2 and b"\r" not in event:
        # What engines send, all but always.
        return event[6:-2]
    lines = []
    for line in _LINE.findall(event.removeprefix(_BOM)):
        name, colon, value = line[0].partition(b":")
        if name == b"data":
            lines.append(value.removeprefix(b" ") if colon else b"")
    return b"\n".join(lines) if lines else None


def with_data(event: bytes, data: bytes) -> bytes:
    """The event with other data (one line), its other lines and its line ends as they are."""
    parts, done = [], False
    body = event.removeprefix(_BOM)
    for line, end in _LINE.findall(body):
        if line.partition(b":")[0] != b"data":
            parts.append(line + end)
        elif not done:
            parts.append(b"data: " + data + (end or b"\n"))
            done = True
    return event[: len(event) - len(body)] + b"".join(parts)


def is_comment(event: bytes) -> bool:
    """Whether nothing but comments is in it, as in the keep-alives of servers."""
    lines = [line for line, _ in _LINE.findall(event.removeprefix(_BOM)) if line]
    return bool(lines) and all(line.startswith(b":") for line in lines)
