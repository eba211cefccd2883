"""``StrayTagFilter``: ASGI middleware around an engine's server, or around :class:`.reverse.ReverseProxy`.

Looks into answers of chat completions, completions and responses; everything else passes as it is, without a copy.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from engine_overlay import settings
from engine_overlay.log import logger
from engine_overlay.proxy import options, request
from engine_overlay.proxy.choices import ChoicesStream, clean_choices
from engine_overlay.proxy.responses import ResponsesStream, clean_response
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

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        kind = None
        if self.active and scope["type"] == "http" and scope["method"] == "POST":
            kind = request.endpoint(scope["path"])
        if kind is None:
            await self.app(scope, receive, send)
            return
        body, replay = await _read(receive)
        if body is None:
            await self.app(scope, replay, send)
            return
        asked = request.read(kind, body)
        if self.options.thinking_token_budget is not None and kind != request.RESPONSES:
            changed = request.with_budget(body, self.options.thinking_token_budget)
            if changed is not body:
                scope = _with_length(scope, len(changed))
                replay = _replay([{"type": "http.request", "body": changed, "more_body": False}], receive)
        await _Exchange(kind, asked, self.options, send).run(self.app, scope, replay)


class _Exchange:
    """One request and its answer."""

    def __init__(self, kind: str, asked: request.Asked, chosen: options.Options, send: Send) -> None:
        self._kind, self._asked, self._options = kind, asked, chosen
        self._send_on = send
        self._receive_from: Receive
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
        elif self._stream is not None:
            await self._streamed(self._stream, message)
        elif self._whole is not None:
            await self._collected(self._whole, message)
        else:
            self._ended = not message.get("more_body", False)
            await self._send_on(message)

    async def _begin(self, message: Message) -> None:
        headers = {name.lower(): value for name, value in message.get("headers", ())}
        media = headers.get(b"content-type", b"").partition(b";")[0].strip().lower()
        plain = headers.get(b"content-encoding", b"identity").strip().lower() == b"identity"
        if message["status"] == 200 and plain and media == b"text/event-stream":
            kind = self._kind
            self._stream = (
                ResponsesStream(self._options, self._asked)
                if kind == request.RESPONSES
                else ChoicesStream(self._options, self._asked, kind)
            )
            # How long it gets is known only at its end.
            await self._send_on(_without_length(message))
        elif message["status"] == 200 and plain and media == b"application/json":
            self._whole, self._start = [], message
        else:
            await self._send_on(message)

    async def _streamed(self, stream: Stream, message: Message) -> None:
        more = message.get("more_body", False)
        out = stream.feed(message.get("body", b""))
        if stream.stopped:
            await self._send_on({"type": "http.response.body", "body": out, "more_body": False})
            self._stop.set()
            asyncio.get_running_loop().call_later(STOP_SECONDS, self._task.cancel)
            return
        if not more:
            out += stream.close()
            self._ended = True
        if out or not more:
            await self._send_on({"type": "http.response.body", "body": out, "more_body": more})

    async def _collected(self, parts: list[bytes], message: Message) -> None:
        more = message.get("more_body", False)
        parts.append(message.get("body", b""))
        self._size += len(parts[-1])
        if more and self._size <= request.MAX_BODY:
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
        try:
            data = json.loads(body)
        except (ValueError, RecursionError):
            return None
        if not isinstance(data, dict):
            return None
        clean = clean_response if self._kind == request.RESPONSES else clean_choices
        return compact(data) if clean(data, self._options, self._asked) else None


async def _read(receive: Receive) -> tuple[bytes | None, Receive]:
    """The request's body and a ``receive`` that says it all again; None for one that is too long or not complete."""
    messages: list[Message] = []
    size = 0
    while True:
        message = await receive()
        messages.append(message)
        size += len(message.get("body", b""))
        if message["type"] != "http.request" or size > request.MAX_BODY:
            return None, _replay(messages, receive)
        if not message.get("more_body", False):
            break
    body = b"".join(message.get("body", b"") for message in messages)
    return body, _replay(messages, receive)


def _replay(messages: list[Message], receive: Receive) -> Receive:
    left = iter(messages)

    async def again() -> Message:
        for message in left:
            return message
        return await receive()

    return again


def _without_length(holder: MutableMapping[str, Any]) -> Message:
    return {**holder, "headers": [(n, v) for n, v in holder.get("headers", ()) if n.lower() != b"content-length"]}


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
