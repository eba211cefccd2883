"""An answer that comes as events: what is passed on at once, what is held, and how a loop is ended.

Events leave in the order in which they came, and one that needs no change with its own bytes. While the end of a text
may still turn out to be a stray tag, its event is held and all later ones wait behind it: at most :data:`MAX_HELD`
bytes, and never past a keep-alive, an error, a finish reason or the end of the stream.
"""

from __future__ import annotations

import json
from collections import deque
from typing import Any

from engine_overlay.log import logger, one_line
from engine_overlay.proxy import sse
from engine_overlay.proxy.edges import Edges, End
from engine_overlay.proxy.options import Options
from engine_overlay.proxy.request import UNREADABLE, Asked

MAX_HELD = 64 * 1024
"""Bytes of events that wait; with more, what is undecided counts as text."""

DONE = b"data: [DONE]\n\n"


class Held:
    """One event: its bytes, its data, and which pieces of text in it wait for a decision."""

    __slots__ = ("changed", "data", "event", "pieces")

    def __init__(self, event: bytes, data: dict[str, Any] | None = None) -> None:
        self.event = event
        self.data = data
        self.changed = False
        self.pieces: list[tuple[Edges, int, int, dict[str, Any], str]] = []

    def add(self, edges: Edges, holder: dict[str, Any], key: str) -> None:
        """``holder[key]`` is the next text of ``edges``."""
        start = edges.total
        edges.feed(holder[key])
        self.pieces.append((edges, start, edges.total, holder, key))

    def decided(self) -> bool:
        return all(end <= edges.decided for edges, _, end, _, _ in self.pieces)

    def render(self) -> bytes:
        for edges, start, end, holder, key in self.pieces:
            if edges.removed and (text := edges.kept(holder[key], start, end)) != holder[key]:
                holder[key] = text
                self.changed = True
        if not self.changed:
            return self.event
        try:
            return sse.with_data(self.event, compact(self.data))
        except RecursionError:
            # Nested so deep that it can be read but not written.
            return self.event


class Stream:
    """One streamed answer. ``stopped``: it was ended here, and nothing more is wanted from the server."""

    def __init__(self, options: Options, asked: Asked) -> None:
        self.options, self.asked = options, asked
        self.stopped = False
        self._events = sse.Splitter(options.max_event)
        self._queue: deque[Held] = deque()
        self._waiting = 0
        self._blind = False

    @property
    def held(self) -> int:
        """Bytes that wait here."""
        return self._waiting + self._events.size

    def feed(self, data: bytes) -> bytes:
        """What can go to the client now that ``data`` has come."""
        if self._blind:
            return data
        try:
            events = self._events.feed(data)
        except sse.TooLong:
            return self.let_go()
        out: list[bytes] = []
        for event in events:
            if self.stopped:
                break
            if self._blind:
                out.append(event)
                continue
            try:
                self._take(event, out)
            except Exception as error:
                # Whatever a server says: what cannot be understood is passed on, and never ends a request.
                logger.warning("proxy: a stream is passed on unread from here: %s", one_line(error))
                self._blind = True
                self._give_back(out)
                out.append(event)
        if self._blind:
            out.append(self._events.rest())
        return b"".join(out)

    def let_go(self) -> bytes:
        """All that is still here; what comes from now on is passed on unread."""
        self._blind = True
        return self.close()

    def close(self) -> bytes:
        """The stream ended or broke off: all that is still here."""
        out: list[bytes] = []
        self._give_back(out)
        return b"".join((*out, self._events.rest()))

    def broke_off(self, told: bytes) -> bytes:
        """The server broke off: what is complete, and the event that tells so instead of the half one.

        A stream that is passed on unread may end in a half event, after which none can be told.
        """
        if self._blind:
            return b""
        out: list[bytes] = []
        self._give_back(out)
        self._events.rest()
        return b"".join((*out, told))

    def give_up(self) -> None:
        """Take all text that is undecided as text. It is in what waits, and nowhere else."""
        for held in self._queue:
            for edges, *_ in held.pieces:
                edges.give_up()

    # -- for the two kinds of answers

    def read(self, held: Held) -> list[bytes] | None:
        """Look at an event. Returns the events to add behind it, or None when it is not to be passed on."""
        raise NotImplementedError

    def finish(self) -> None:
        """``[DONE]`` came."""
        raise NotImplementedError

    # -- the queue

    def _take(self, event: bytes, out: list[bytes]) -> None:
        data = sse.data_of(event)
        held, behind = Held(event), []
        if data == b"[DONE]":
            self.finish()
        elif data is None:
            if self._queue and sse.is_comment(event):
                # A keep-alive says that the server stands still; the client must not miss it, nor what is held.
                self.give_up()
        elif (content := _object(data)) is not None:
            if content.get("error"):
                self.give_up()
            else:
                held.data = content
                behind = self.read(held)
                if behind is None:
                    return
        self._queue.append(held)
        self._queue.extend(map(Held, behind))
        self._waiting += len(held.event) + sum(map(len, behind))
        self._release(out)
        if self._waiting > MAX_HELD:
            self._give_back(out)

    def _give_back(self, out: list[bytes]) -> None:
        """What waits, as it is decided so far, or as it came."""
        self.give_up()
        self._release(out)

    def _release(self, out: list[bytes]) -> None:
        while self._queue and self._queue[0].decided():
            held = self._queue.popleft()
            self._waiting -= len(held.event)
            out.append(held.render())


def compact(data: Any) -> bytes:
    """JSON as engines write it: no blanks, text as it is."""
    try:
        return json.dumps(data, ensure_ascii=False, separators=(",", ":")).encode()
    except UnicodeEncodeError:
        return json.dumps(data, separators=(",", ":")).encode()


def tell(why: str) -> None:
    logger.warning("proxy: a stream was ended: %s", why)


def end_of(finish_reason: object) -> End:
    return End.CUT if finish_reason == "length" else End.WHOLE


def _object(data: bytes) -> dict[str, Any] | None:
    try:
        content = json.loads(data)
    except UNREADABLE:
        return None
    return content if isinstance(content, dict) else None
