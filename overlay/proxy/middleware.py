"""``StrayTagFilter``: ASGI middleware around an engine's server, or around :class:`.reverse.ReverseProxy`.

Looks into answers of chat completions, completions and responses; everything else passes as it is, without a copy.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections import deque
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from engine_overlay import settings
from engine_overlay.log import logger, one_line
from engine_overlay.proxy import decoding, errors, options, request
from engine_overlay.proxy.choices import ChoicesStream, clean_choices
from engine_overlay.proxy.responses import ResponsesStream, clean_response
from engine_overlay.proxy.room import Room, Share
from engine_overlay.proxy.stream import Stream, compact

Message = MutableMapping[str, Any]
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

STOP_SECONDS = 2.0
"""Time for the server to notice that its stream was ended, as it notices a client that left; then it is cancelled."""


class StrayTagFilter:
    """Takes stray tags out of the edges of answers and ends streams that say nothing any more.

    For ``--middleware engine_overlay.proxy.StrayTagFilter`` it takes its options from ``ENGINE_OVERLAY_PROXY``; what
    is wrong there is told once and left out. With ``ENGINE_OVERLAY=off`` everything passes as it is.
    """

    def __init__(self, app: App, chosen: options.Options | None = None) -> None:
        self.app = app
        self.active = chosen is not None or settings.read().mode != "off"
        self.options = chosen if chosen is not None else _from_environment()
        self.room = Room(self.options.max_memory)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        kind = None
        if self.active and scope["type"] == "http" and scope["method"] == "POST":
            kind = request.endpoint(scope["path"])
        if kind is None:
            await self.app(scope, receive, send)
            return
        share = self.room.share()
        try:
            await self._filter(kind, share, scope, receive, send)
        finally:
            share.release()

    async def _filter(self, kind: str, share: Share, scope: Scope, receive: Receive, send: Send) -> None:
        messages, whole = await _read(receive, self.options.max_body, share)
        if not whole:
            await self.app(scope, _replay(messages, receive, share), send)
            return
        body = b"".join(message.get("body", b"") for message in messages)
        asked = request.read(kind, body)
        if self.options.thinking_token_budget is not None and kind != request.RESPONSES:
            changed = request.with_budget(body, self.options.thinking_token_budget)
            if changed is not body:
                scope = _with_length(scope, len(changed))
                messages = deque([{"type": "http.request", "body": changed, "more_body": False}])
            del changed
        # A long answer must not keep the question in memory.
        del body
        await _Exchange(kind, asked, self.options, send, share).run(self.app, scope, _replay(messages, receive, share))


class _Exchange:
    """One request and its answer."""

    def __init__(
        self, kind: str, asked: request.Asked, chosen: options.Options, send: Send, share: Share
    ) -> None:
        self._kind, self._asked, self._options = kind, asked, chosen
        self._send_on, self._share = send, share
        self._decoder: decoding.Decoder | None = None
        self._receive_from: Receive
        self._path = ""
        self._task: asyncio.Task[None] | None = None
        self._stream: Stream | None = None
        self._whole: list[bytes] | None = None
        self._size = 0
        self._start: Message = {}
        self._ended = False
        self._stop = asyncio.Event()
        self._raises = self._asked_all = False

    @property
    def _stopped(self) -> bool:
        return self._stop.is_set()

    async def run(self, app: App, scope: Scope, receive: Receive) -> None:
        version = str(scope.get("asgi", {}).get("spec_version", "2.0"))
        # From 2.4 on an application hears of a client that left by an error from send, before by receive alone.
        self._raises = tuple(map(int, version.split("."))) >= (2, 4)
        self._receive_from = receive
        self._path = scope["path"]
        # A task of its own, because a stream that is ended here has to be cancelled there.
        self._task = asyncio.ensure_future(app(scope, self._receive, self._send))
        try:
            await self._task
        except asyncio.CancelledError:
            if not self._stopped:
                raise
        except Exception:
            # What a server says of being stopped is of no interest to anybody.
            if not self._stopped:
                raise
        finally:
            if not self._stopped and not self._ended:
                await self._broke_off()

    async def _broke_off(self) -> None:
        """The server stopped in the middle: the client gets what was held, and sees the break as it is."""
        rest = b""
        if self._stream is not None:
            rest = self._stream.close()
        elif self._whole is not None:
            await self._send_on(self._start)
            rest = b"".join(self._whole)
        if rest:
            await self._send_on({"type": "http.response.body", "body": rest, "more_body": True})

    async def _receive(self) -> Message:
        """What the client says; that it left, when its stream was ended."""
        if not self._asked_all:
            message = await self._receive_from()
            self._asked_all = not message.get("more_body", False)
            return message
        said = asyncio.ensure_future(self._receive_from())
        stopped = asyncio.ensure_future(self._stop.wait())
        try:
            await asyncio.wait((said, stopped), return_when=asyncio.FIRST_COMPLETED)
            return said.result() if said.done() else {"type": "http.disconnect"}
        finally:
            said.cancel()
            stopped.cancel()

    async def _send(self, message: Message) -> None:
        if self._stopped:
            if self._raises:
                raise OSError("the stream was ended")
            return
        if message["type"] == "http.response.start":
            await self._begin(message)
        elif message["type"] != "http.response.body":
            await self._send_on(message)
        elif errors.BROKEN in message and (self._stream is not None or self._whole is not None):
            await self._tell(message)
        elif self._decoder is not None:
            await self._decoded(self._decoder, message)
        else:
            await self._body(message)

    async def _body(self, message: Message) -> None:
        if self._stream is not None:
            await self._streamed(self._stream, message)
        elif self._whole is not None:
            await self._collected(self._whole, message)
        else:
            self._ended = not message.get("more_body", False)
            await self._send_on(message)

    async def _begin(self, message: Message) -> None:
        headers = {name.lower(): value for name, value in message.get("headers", ())}
        media = headers.get(b"content-type", b"").partition(b";")[0].strip().lower()
        encoding = headers.get(b"content-encoding", b"identity").strip().lower()
        ours = message["status"] == 200 and media in (b"text/event-stream", b"application/json")
        if ours and encoding in decoding.KNOWN:
            self._decoder, encoding = decoding.Decoder(encoding), b"identity"
            message = _without(message, b"content-length", b"content-encoding")
        elif ours and encoding != b"identity":
            logger.warning("proxy: an answer is passed on unread: its encoding %r cannot be decoded here", encoding)
        if ours and encoding == b"identity" and media == b"text/event-stream":
            kind = self._kind
            self._stream = (
                ResponsesStream(self._options, self._asked)
                if kind == request.RESPONSES
                else ChoicesStream(self._options, self._asked, kind)
            )
            # How long it gets is known only at its end.
            await self._send_on(_without(message, b"content-length"))
        elif ours and encoding == b"identity":
            self._whole, self._start = [], message
        else:
            await self._send_on(message)

    async def _tell(self, message: Message) -> None:
        """The server broke off, and the proxy says so: with what is complete, or in place of an answer."""
        self._ended = True
        if self._stream is not None:
            told = self._stream.broke_off(errors.event(self._path, message[errors.BROKEN]))
            # No end of the body: the client sees that it is not there.
            await self._send_on({"type": "http.response.body", "body": told, "more_body": True})
        else:
            self._whole = None
            await errors.answer(self._send_on, 502, message[errors.BROKEN])

    async def _decoded(self, decoder: decoding.Decoder, message: Message) -> None:
        more = message.get("more_body", False)
        try:
            for piece in decoder.feed(message.get("body", b"")):
                await self._body({"type": "http.response.body", "body": piece, "more_body": True})
            if not more:
                rest = decoder.end()
                await self._body({"type": "http.response.body", "body": rest, "more_body": False})
        except decoding.Broken as error:
            logger.warning("proxy: a compressed answer cannot be decoded: %s", one_line(error))
            broken = {"type": "http.response.body", "body": b"", errors.BROKEN: "its compressed answer is damaged"}
            if self._stream is not None or self._whole is not None:
                await self._tell(broken)
            self._stop_server()

    def _stop_server(self) -> None:
        self._stop.set()
        asyncio.get_running_loop().call_later(STOP_SECONDS, self._task.cancel)

    async def _streamed(self, stream: Stream, message: Message) -> None:
        more = message.get("more_body", False)
        out = stream.feed(message.get("body", b""))
        if stream.stopped:
            await self._send_on({"type": "http.response.body", "body": out, "more_body": False})
            self._stop_server()
            return
        if not self._share.hold(stream.held):
            out += stream.let_go()
        if not more:
            out += stream.close()
            self._ended = True
        if out or not more:
            await self._send_on({"type": "http.response.body", "body": out, "more_body": more})

    async def _collected(self, parts: list[bytes], message: Message) -> None:
        more = message.get("more_body", False)
        parts.append(message.get("body", b""))
        self._size += len(parts[-1])
        if more and self._size <= self._options.max_body and self._share.hold(self._size):
            return
        body, start = b"".join(parts), self._start
        if not more:
            changed = self._cleaned(body)
            if changed is not None:
                body, start = changed, _with_length(start, len(changed))
        self._whole = None
        self._ended = not more
        await self._send_on(start)
        await self._send_on({"type": "http.response.body", "body": body, "more_body": more})

    def _cleaned(self, body: bytes) -> bytes | None:
        clean = clean_response if self._kind == request.RESPONSES else clean_choices
        try:
            data = json.loads(body)
            return compact(data) if isinstance(data, dict) and clean(data, self._options, self._asked) else None
        except request.UNREADABLE:
            return None
        except Exception as error:
            # Whatever a server says: what cannot be understood is passed on, and never ends a request.
            logger.warning("proxy: an answer is passed on unread: %s", one_line(error))
            return None


async def _read(receive: Receive, most: int, share: Share) -> tuple[deque[Message], bool]:
    """The messages of a request's body, and whether they are all of it; not when it is too long or breaks off."""
    messages: deque[Message] = deque()
    size = 0
    while True:
        message = await receive()
        messages.append(message)
        size += len(message.get("body", b""))
        if message["type"] != "http.request" or size > most or not share.hold(size):
            return messages, False
        if not message.get("more_body", False):
            return messages, True


def _replay(messages: deque[Message], receive: Receive, share: Share) -> Receive:
    """Says it all again, once, and then what ``receive`` says."""

    async def again() -> Message:
        if not messages:
            return await receive()
        message = messages.popleft()
        if not messages:
            share.release()
        return message

    return again


def _without(message: Message, *names: bytes) -> Message:
    return {**message, "headers": [(n, v) for n, v in message.get("headers", ()) if n.lower() not in names]}


def _with_length(holder: MutableMapping[str, Any], length: int) -> Message:
    """A message or scope whose headers give this length, if they give one."""
    new = str(length).encode()
    headers = [(n, new if n.lower() == b"content-length" else v) for n, v in holder.get("headers", ())]
    return {**holder, "headers": headers}


def _from_environment() -> options.Options:
    text = os.environ.get(settings.PROXY, "")
    try:
        return options.parse(text)
    except options.BadOption as error:
        logger.warning("%s: %s; the filter works without these options, set the variable right", settings.PROXY, error)
        return options.Options()
