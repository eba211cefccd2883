"""One answer as a client gets it: its texts, its calls, how it ended, and the events that it came in."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from engine_overlay.proxy import sse

REASONING = ("reasoning", "reasoning_content")
"""Names that servers give to the field with the thoughts."""

MAX_RAW = 512 * 1024
"""Bytes of events that are kept as evidence; of a longer answer the last ones."""


@dataclass(slots=True)
class Call:
    """One call as its deltas add up. ``arguments`` is the JSON text as it came."""

    id: str = ""
    name: str = ""
    arguments: str = ""
    nameless: bool = False
    """Arguments came before any name."""


@dataclass(slots=True)
class Piece:
    """One text of one event. ``field``: reasoning, content or ``arguments N``. ``seconds`` since the request."""

    field: str
    text: str
    event: int
    seconds: float


@dataclass(slots=True)
class Answer:
    """``status`` is 0 when no answer came. Times are seconds since the request was sent.

    ``odd`` are breaches of the protocol as (name, evidence), noted while the answer was read; see
    :mod:`engine_overlay.canary.detectors.protocol`.
    """

    streamed: bool
    status: int = 0
    refusal: str = ""
    reasoning: str = ""
    content: str = ""
    calls: list[Call] = field(default_factory=list)
    finish: str | None = None
    usage: dict[str, Any] = field(default_factory=dict)
    pieces: list[Piece] = field(default_factory=list)
    events: dict[int, bytes] = field(default_factory=dict)
    odd: list[tuple[str, str]] = field(default_factory=list)
    broke: str = ""
    timed_out: bool = False
    seconds: float = 0.0

    @property
    def complete(self) -> bool:
        """Whether it ended by itself: no limit of tokens or time, no break."""
        return self.status == 200 and not self.broke and not self.timed_out and self.finish not in (None, "length")

    @property
    def first(self) -> float | None:
        """Seconds to the first text or call."""
        return self.pieces[0].seconds if self.pieces else None

    @property
    def gaps(self) -> list[float]:
        """Seconds between one event with text and the next."""
        times = sorted({piece.event: piece.seconds for piece in self.pieces}.values())
        return [later - earlier for earlier, later in zip(times, times[1:], strict=False)]

    @property
    def tokens(self) -> int | None:
        """Tokens of the answer, as the server counts them."""
        count = self.usage.get("completion_tokens")
        return count if isinstance(count, int) else None

    @property
    def thought_tokens(self) -> int | None:
        """Tokens of its reasoning, as the server counts them."""
        details = self.usage.get("completion_tokens_details")
        count = details.get("reasoning_tokens") if isinstance(details, dict) else None
        return count if isinstance(count, int) else None

    def raw(self, name: str, start: int, end: int, most: int = 4) -> str:
        """The events, as they came, that hold the characters from ``start`` to ``end`` of one field."""
        at, found = 0, []
        for piece in self.pieces:
            if piece.field != name:
                continue
            if at + len(piece.text) > start and at < max(end, start + 1):
                found.append(piece.event)
            at += len(piece.text)
        shown = [self.events[n].decode("utf-8", "replace").strip() for n in dict.fromkeys(found) if n in self.events]
        dots = ["..."] if len(shown) > most else []
        return "\n".join([*shown[:most], *dots])

    # -- reading

    def add(self, name: str, text: str, event: int, seconds: float) -> None:
        """``text`` is the next of the field ``name``."""
        if name == "reasoning":
            self.reasoning += text
        elif name == "content":
            self.content += text
        self.pieces.append(Piece(name, text, event, seconds))


class Reader:
    """Reads a stream of events into an answer."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self._events = sse.Splitter()
        self._number = 0
        self._size = 0
        self._done = False
        self._calls: dict[int, int] = {}

    def feed(self, data: bytes, seconds: float) -> None:
        """Bytes that came. Raises :class:`engine_overlay.proxy.sse.TooLong`."""
        for event in self._events.feed(data):
            self._take(event, seconds)

    def close(self, seconds: float) -> None:
        """The stream is over, however it ended."""
        answer = self._answer
        rest = self._events.rest()
        if rest.strip():
            # The empty line behind the last event is left out by some servers.
            if sse.data_of(rest) == b"[DONE]" or _object(sse.data_of(rest)) is not None:
                self._take(rest, seconds)
            else:
                answer.odd.append(("cut event", _shown(rest)))
        if not self._done:
            answer.odd.append(("no done", _shown(answer.events[self._number]) if self._number in answer.events else ""))
        answer.seconds = seconds

    def _take(self, event: bytes, seconds: float) -> None:
        data = sse.data_of(event)
        if data is None:
            return
        answer = self._answer
        self._number += 1
        self._size += len(event)
        answer.events[self._number] = event
        while self._size > MAX_RAW and len(answer.events) > 1:
            self._size -= len(answer.events.pop(next(iter(answer.events))))
        if self._done:
            answer.odd.append(("after done", _shown(event)))
        elif data == b"[DONE]":
            self._done = True
        elif (content := _object(data)) is None:
            answer.odd.append(("no json", _shown(event)))
        elif content.get("error"):
            answer.odd.append(("error event", _shown(event)))
        else:
            self._read(content, event, seconds)

    def _read(self, content: dict[str, Any], event: bytes, seconds: float) -> None:
        answer = self._answer
        if isinstance(content.get("usage"), dict):
            answer.usage = content["usage"]
        for choice in _list(content.get("choices")):
            if not isinstance(choice, dict):
                answer.odd.append(("no json", _shown(event)))
                continue
            delta = choice.get("delta") if isinstance(choice.get("delta"), dict) else {}
            finished = answer.finish is not None
            before = len(answer.pieces)
            _texts(answer, delta, self._number, seconds)
            for part in _list(delta.get("tool_calls")):
                self._call(part, event, seconds)
            if finished and len(answer.pieces) > before:
                answer.odd.append(("after finish", _shown(event)))
            if reason := choice.get("finish_reason"):
                if finished and reason != answer.finish:
                    answer.odd.append(("two finishes", _shown(event)))
                answer.finish = str(reason)

    def _call(self, part: Any, event: bytes, seconds: float) -> None:
        answer = self._answer
        if not isinstance(part, dict):
            answer.odd.append(("no json", _shown(event)))
            return
        index = part.get("index")
        if not isinstance(index, int):
            # Some servers leave it out; then an id begins the next call.
            index = len(self._calls) if part.get("id") or not self._calls else list(self._calls)[-1]
        if index not in self._calls:
            self._calls[index] = len(answer.calls)
            answer.calls.append(Call())
        index = self._calls[index]
        call = answer.calls[index]
        said = part.get("function") if isinstance(part.get("function"), dict) else {}
        call.id = call.id or _text(part.get("id"))
        call.name += _text(said.get("name"))
        arguments = _arguments(answer, said, event)
        call.nameless = call.nameless or bool(arguments and not call.name)
        call.arguments += arguments
        answer.add(f"arguments {index}", arguments, self._number, seconds)


def read_whole(answer: Answer, body: bytes, seconds: float) -> None:
    """Read an answer that was not streamed."""
    answer.events[1] = body if len(body) <= MAX_RAW else body[:MAX_RAW]
    answer.seconds = seconds
    content = _object(body)
    choices = _list(content.get("choices")) if content else []
    if not choices or not isinstance(choices[0], dict) or not isinstance(choices[0].get("message"), dict):
        answer.odd.append(("no answer", _shown(body)))
        return
    if isinstance(content.get("usage"), dict):
        answer.usage = content["usage"]
    message = choices[0]["message"]
    _texts(answer, message, 1, seconds)
    for index, part in enumerate(_list(message.get("tool_calls"))):
        said = part.get("function") if isinstance(part, dict) and isinstance(part.get("function"), dict) else {}
        call = Call(_text(part.get("id")) if isinstance(part, dict) else "", _text(said.get("name")))
        call.arguments = _arguments(answer, said, body)
        answer.calls.append(call)
        answer.add(f"arguments {index}", call.arguments, 1, seconds)
    if reason := choices[0].get("finish_reason"):
        answer.finish = str(reason)


def message_of(body: bytes) -> str:
    """What an error answer says, in one line."""
    content = _object(body)
    if content is not None:
        error = content.get("error", content.get("detail", content.get("message")))
        if isinstance(error, dict):
            error = error.get("message") or error
        if error:
            return _line(error if isinstance(error, str) else json.dumps(error))
    return _line(body.decode("utf-8", "replace"))


def _texts(answer: Answer, said: dict[str, Any], event: int, seconds: float) -> None:
    # Servers that send both names send the same text in both.
    for name in REASONING:
        if text := _text(said.get(name)):
            answer.add("reasoning", text, event, seconds)
            break
    for text in (_text(said.get("content")), _text(said.get("refusal"))):
        if text:
            answer.add("content", text, event, seconds)


def _arguments(answer: Answer, said: dict[str, Any], event: bytes) -> str:
    arguments = said.get("arguments")
    if arguments is not None and not isinstance(arguments, str):
        answer.odd.append(("no text", _shown(event)))
        return json.dumps(arguments)
    return arguments or ""


def _object(data: bytes | None) -> dict[str, Any] | None:
    try:
        content = json.loads(data or b"")
    except (ValueError, RecursionError):
        return None
    return content if isinstance(content, dict) else None


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _text(value: Any) -> str:
    """A text, or the texts of a list of parts."""
    if isinstance(value, list):
        return "".join(_text(part.get("text")) for part in value if isinstance(part, dict))
    return value if isinstance(value, str) else ""


def _line(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= 300 else text[:297] + "..."


def _shown(event: bytes) -> str:
    text = event.decode("utf-8", "replace").strip()
    return text if len(text) <= 600 else text[:597] + "..."
