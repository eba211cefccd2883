"""What a client may ask the proxy for: the outermost layer, before the filter.

Paths are brought to one form and compared with those that are allowed; a WebSocket is refused in clear words; and a
client of HTTP/1.0, which knows no chunks, gets its answer whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import unquote

from engine_overlay.proxy import errors, target
from engine_overlay.proxy.middleware import App, Message, Receive, Scope, Send
from engine_overlay.proxy.room import Room, Share


class Front:
    """``paths``: beginnings of paths that are passed on, all without any. ``most``: bytes of a whole answer."""

    def __init__(self, app: App, paths: Sequence[str], most: int, room: Room) -> None:
        self._app, self._paths, self._most, self._room = app, paths, most, room

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        given = (scope.get("raw_path") or scope["path"].encode()).partition(b"?")[0]
        path = target.clean(given)
        if any(name == b"upgrade" and value.lower() == b"websocket" for name, value in scope["headers"]):
            await errors.answer(send, 501, "WebSockets are not passed on; ask the server itself")
        elif path is None:
            await errors.answer(send, 400, "the path is ambiguous; send it without encoded dots and slashes")
        elif not target.allowed(path, self._paths):
            await errors.answer(send, 403, "this path is not one of those that --allow-path names")
        else:
            if path != given:
                scope = {**scope, "raw_path": path, "path": unquote(path.decode("latin-1"))}
            if scope.get("http_version") == "1.0":
                await _Whole(send, self._most, self._room.share()).run(self._app, scope, receive)
            else:
                await self._app(scope, receive, send)


class _TooLong(OSError):
    """An answer is too long to be sent whole."""


class _Whole:
    """One answer, collected until its length is known."""

    def __init__(self, send: Send, most: int, share: Share) -> None:
        self._send_on, self._most, self._share = send, most, share
        self._start: Message | None = None
        self._parts: list[bytes] = []
        self._size = 0
        self._done = False

    async def run(self, app: App, scope: Scope, receive: Receive) -> None:
        try:
            await app(scope, receive, self._send)
        except _TooLong:
            pass
        finally:
            self._share.release()
        if self._start is None or self._done:
            return
        long = self._size > self._most
        why = "the answer is too long for HTTP/1.0; ask with HTTP/1.1" if long else "the server broke off its answer"
        await errors.answer(self._send_on, 502, why)

    async def _send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._start = message
        elif message["type"] == "http.response.body" and self._start is not None:
            await self._collect(message)

    async def _collect(self, message: Message) -> None:
        body = message.get("body", b"")
        self._size += len(body)
        if self._size > self._most or not self._share.hold(self._size):
            self._size = self._most + 1
            raise _TooLong
        self._parts.append(body)
        if message.get("more_body", False):
            return
        headers = list(self._start.get("headers", ()))
        # Without a body there is none to measure, or, for HEAD, another one is spoken of.
        if self._size and not any(name.lower() == b"content-length" for name, _ in headers):
            headers.append((b"content-length", str(self._size).encode()))
        self._done = True
        await self._send_on({**self._start, "headers": headers})
        await self._send_on({"type": "http.response.body", "body": b"".join(self._parts), "more_body": False})
