"""A reverse proxy as an ASGI application: every request goes to one server, and its answer comes back as it comes.

Nothing is kept: a slow client slows down the reading from the server, and a client that leaves ends its request there.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import httpx

from engine_overlay.log import logger, one_line
from engine_overlay.proxy import request
from engine_overlay.proxy.middleware import Receive, Scope, Send
from engine_overlay.proxy.stream import compact

CONNECT_SECONDS = 10.0
IDLE_SECONDS = 2.0
"""A connection is used again within this time; servers close idle ones after 5 s or more."""

HOP_BY_HOP = frozenset(
    b"connection keep-alive proxy-authenticate proxy-authorization proxy-connection te trailer transfer-encoding "
    b"upgrade".split()
)


class ReverseProxy:
    """``upstream``: the server's address, with a folder or without; a final ``/v1`` is in clients' paths already."""

    def __init__(self, upstream: httpx.URL) -> None:
        self._base = upstream
        self._folder = upstream.raw_path.partition(b"?")[0].rstrip(b"/").removesuffix(b"/v1")
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=1024, keepalive_expiry=IDLE_SECONDS)
        # The transport alone: no cookies, no redirects, no proxies of the environment.
        self._transport = httpx.AsyncHTTPTransport(limits=limits, trust_env=False)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._lifespan(receive, send)
        elif scope["type"] == "websocket":
            await receive()
            await send({"type": "websocket.close", "code": 1003, "reason": "engine-overlay proxy: HTTP only"})
        else:
            await self._forward(scope, receive, send)

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        await receive()
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await self._transport.aclose()
        await send({"type": "lifespan.shutdown.complete"})

    async def _forward(self, scope: Scope, receive: Receive, send: Send) -> None:
        sent = asyncio.Event()
        work = asyncio.ensure_future(_Answer(self, scope, send).run(_body(receive, sent)))
        gone = asyncio.ensure_future(_client_gone(receive, sent))
        try:
            await asyncio.wait((work, gone), return_when=asyncio.FIRST_COMPLETED)
        finally:
            # Whoever is left has nothing to do any more; closing the connection tells the server.
            for task in (work, gone):
                task.cancel()
            results = await asyncio.gather(work, gone, return_exceptions=True)
        error = results[0]
        if isinstance(error, Exception) and not isinstance(error, _ClientGone):
            raise error

    def outgoing(self, scope: Scope, body: AsyncIterator[bytes]) -> httpx.Request:
        query = scope.get("query_string", b"")
        raw_path = scope.get("raw_path") or scope["path"].encode()
        target = self._folder + raw_path.partition(b"?")[0] + (b"?" + query if query else b"")
        looked_into = scope["method"] == "POST" and request.endpoint(scope["path"]) is not None
        headers = _end_to_end(scope["headers"], b"host", b"accept-encoding" if looked_into else b"host")
        if looked_into:
            headers.append((b"accept-encoding", b"identity"))
        client, host = scope.get("client"), dict(scope["headers"]).get(b"host")
        if client:
            before = [value for name, value in headers if name == b"x-forwarded-for"]
            headers = [(name, value) for name, value in headers if name != b"x-forwarded-for"]
            headers.append((b"x-forwarded-for", b", ".join([*before, str(client[0]).encode()])))
        for name, value in ((b"x-forwarded-host", host), (b"x-forwarded-proto", scope.get("scheme", "http").encode())):
            if value and name not in dict(headers):
                headers.append((name, value))
        names = dict(scope["headers"])
        has_body = b"content-length" in names or b"transfer-encoding" in names
        built = httpx.Request(
            scope["method"], self._base.copy_with(raw_path=target), headers=headers, content=body if has_body else None
        )
        timeout = {"connect": CONNECT_SECONDS, "read": None, "write": None, "pool": None}
        built.extensions["timeout"] = timeout
        return built

    async def open(self, outgoing: httpx.Request) -> httpx.Response:
        return await self._transport.handle_async_request(outgoing)


class _ClientGone(Exception):
    """The client left before its request was complete."""


class _Answer:
    """One answer on its way back."""

    def __init__(self, proxy: ReverseProxy, scope: Scope, send: Send) -> None:
        self._proxy, self._scope, self._send = proxy, scope, send

    async def run(self, body: AsyncIterator[bytes]) -> None:
        try:
            response = await self._proxy.open(self._proxy.outgoing(self._scope, body))
        except httpx.HTTPError as error:
            await self._no_answer(error)
            return
        try:
            headers = _end_to_end([(name.lower(), value) for name, value in response.headers.raw])
            await self._send({"type": "http.response.start", "status": response.status_code, "headers": headers})
            # aiter_bytes would take compression off; the client asked for it and gets it.
            async for piece in response.stream:
                await self._send({"type": "http.response.body", "body": piece, "more_body": True})
        except httpx.HTTPError as error:
            await self._broke_off(error, response.headers.get("content-type", ""))
            return
        finally:
            await response.aclose()
        await self._send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _no_answer(self, error: httpx.HTTPError) -> None:
        slow = isinstance(error, httpx.TimeoutException)
        status = 504 if slow else 502
        logger.warning("proxy: no answer from the server for %s: %s", self._scope["path"], one_line(error))
        content = compact({"error": _error(f"the server cannot be reached ({one_line(error)})", status)})
        headers = [(b"content-type", b"application/json"), (b"content-length", str(len(content)).encode())]
        await self._send({"type": "http.response.start", "status": status, "headers": headers})
        await self._send({"type": "http.response.body", "body": content, "more_body": False})

    async def _broke_off(self, error: httpx.HTTPError, media: str) -> None:
        """Tell a client that reads events; for all, the connection ends without an end of the body, as it did here."""
        logger.warning("proxy: the server broke off its answer to %s: %s", self._scope["path"], one_line(error))
        if not media.startswith("text/event-stream"):
            return
        told = _error("the server broke off its answer", 502)
        if request.endpoint(self._scope["path"]) == request.RESPONSES:
            told = {"type": "error", "code": "502", "message": told["message"], "param": None}
            event = b"event: error\ndata: " + compact(told)
        else:
            event = b"data: " + compact({"error": told})
        # The empty line ends whatever event was being sent.
        await self._send({"type": "http.response.body", "body": b"\n\n" + event + b"\n\n", "more_body": True})


def _error(message: str, status: int) -> dict[str, object]:
    return {"message": f"engine-overlay proxy: {message}", "type": "upstream_error", "param": None, "code": status}


def _end_to_end(headers: list[tuple[bytes, bytes]], *without: bytes) -> list[tuple[bytes, bytes]]:
    """The headers that are meant for the other end, without those that ``Connection`` names."""
    named = {word.strip().lower() for name, value in headers if name == b"connection" for word in value.split(b",")}
    skip = HOP_BY_HOP | named | set(without)
    return [(name, value) for name, value in headers if name not in skip]


async def _body(receive: Receive, sent: asyncio.Event) -> AsyncIterator[bytes]:
    while True:
        message = await receive()
        if message["type"] != "http.request":
            raise _ClientGone
        if body := message.get("body", b""):
            yield body
        if not message.get("more_body", False):
            sent.set()
            return


async def _client_gone(receive: Receive, sent: asyncio.Event) -> None:
    await sent.wait()
    while (await receive())["type"] != "http.disconnect":
        pass
