"""A reverse proxy as an ASGI application: every request goes to one server, and its answer comes back as it comes.

Nothing is kept: a slow client slows down the reading from the server, and a client that leaves ends its request there.
Every request has a connection of its own, closed with its answer. Whatever a server writes too late, too long or
unasked (a 408 to an idle connection, bytes behind an answer) so has nobody to reach; no check before a connection is
used again could promise that, since such bytes may come after it.
"""

from __future__ import annotations

import asyncio
import re
import ssl
from collections.abc import AsyncIterator

import httpcore

from engine_overlay.log import logger, one_line
from engine_overlay.proxy import errors, request
from engine_overlay.proxy.middleware import Receive, Scope, Send
from engine_overlay.proxy.network import Backend

CONNECT_SECONDS = 10.0

HOP_BY_HOP = frozenset(
    b"connection keep-alive proxy-authenticate proxy-authorization proxy-connection te trailer transfer-encoding "
    b"upgrade".split()
)

FAILURES = (httpcore.NetworkError, httpcore.TimeoutException, httpcore.ProtocolError)

_CONTROL = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")
_EVENT_END = (b"\n\n", b"\r\r", b"\n\r\n")


class ReverseProxy:
    """``upstream``: the server's address, with a folder or without; a final ``/v1`` is in clients' paths already."""

    def __init__(self, upstream: str) -> None:
        self._url = httpcore.URL(upstream)
        self._folder = self._url.target.rstrip(b"/").removesuffix(b"/v1")
        default = {b"http": 80, b"https": 443}[self._url.scheme]
        host = b"[%s]" % self._url.host if b":" in self._url.host else self._url.host
        self._host = host if self._url.port in (None, default) else b"%s:%d" % (host, self._url.port)
        # The system's certificates, or those that SSL_CERT_FILE names.
        tls = ssl.create_default_context() if self._url.scheme == b"https" else None
        # The pool alone: no cookies, no redirects, no proxies of the environment; and nothing in it twice.
        self.pool = httpcore.AsyncConnectionPool(
            ssl_context=tls,
            max_connections=None,
            max_keepalive_connections=0,
            network_backend=None if tls else Backend(),
        )

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
        await self.pool.aclose()
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

    def outgoing(self, scope: Scope, body: AsyncIterator[bytes]) -> httpcore.Request:
        """The request as it goes to the server."""
        query = scope.get("query_string", b"")
        path = (scope.get("raw_path") or scope["path"].encode()).partition(b"?")[0]
        target = self._folder + path + (b"?" + query if query else b"")
        given = dict(scope["headers"])
        looked_into = scope["method"] == "POST" and request.endpoint(scope["path"]) is not None
        headers = [(b"host", self._host), (b"connection", b"close")]
        headers += _end_to_end(
            scope["headers"], b"host", b"x-forwarded-for", b"accept-encoding" if looked_into else b""
        )
        if looked_into:
            headers.append((b"accept-encoding", b"identity"))
        if client := scope.get("client"):
            before = given.get(b"x-forwarded-for")
            address = str(client[0]).encode()
            headers.append((b"x-forwarded-for", b"%s, %s" % (before, address) if before else address))
        for name, value in (
            (b"x-forwarded-host", given.get(b"host")),
            (b"x-forwarded-proto", scope["scheme"].encode()),
        ):
            if value and name not in given:
                headers.append((name, value))
        has_body = b"content-length" in given or b"transfer-encoding" in given
        if has_body and b"content-length" not in given:
            headers.append((b"transfer-encoding", b"chunked"))
        return httpcore.Request(
            scope["method"],
            httpcore.URL(scheme=self._url.scheme, host=self._url.host, port=self._url.port, target=target),
            headers=headers,
            content=body if has_body else _nothing(body),
            extensions={"timeout": {"connect": CONNECT_SECONDS}},
        )


class _ClientGone(Exception):
    """The client left before its request was complete."""


class _Answer:
    """One answer on its way back."""

    def __init__(self, proxy: ReverseProxy, scope: Scope, send: Send) -> None:
        self._proxy, self._scope, self._send = proxy, scope, send

    async def run(self, body: AsyncIterator[bytes]) -> None:
        try:
            response = await self._proxy.pool.handle_async_request(self._proxy.outgoing(self._scope, body))
        except FAILURES as error:
            await self._no_answer(error)
            return
        last = b""
        try:
            if _is_odd(response):
                await self._no_answer(httpcore.RemoteProtocolError("its status or a header is not valid"))
                return
            headers = _of_answer(response)
            await self._send({"type": "http.response.start", "status": response.status, "headers": headers})
            async for piece in response.aiter_stream():
                await self._send({"type": "http.response.body", "body": piece, "more_body": True})
                last = (last + piece)[-3:] if len(piece) < 3 else piece[-3:]
        except FAILURES as error:
            await self._broke_off(error, dict(headers).get(b"content-type", b""), last)
            return
        finally:
            await response.aclose()
        await self._send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _no_answer(self, error: Exception) -> None:
        slow = isinstance(error, httpcore.TimeoutException)
        status = 504 if slow else 502
        logger.warning("proxy: no answer from the server for %s: %s", self._scope["path"], one_line(error))
        await errors.answer(self._send, status, f"the server cannot be reached ({one_line(error)})")

    async def _broke_off(self, error: Exception, media: bytes, last: bytes) -> None:
        """Tell a client that reads events; for all, the connection ends without an end of the body, as it did here."""
        logger.warning("proxy: the server broke off its answer to %s: %s", self._scope["path"], one_line(error))
        why = "the server broke off its answer"
        told = b""
        # Behind half an event nothing can be told: it would be read as a part of it. The filter, which holds such a
        # half back, hears by the key that it can say so in its place.
        if media.lower().startswith(b"text/event-stream") and (not last or last.endswith(_EVENT_END)):
            told = errors.event(self._scope["path"], why)
        await self._send({"type": "http.response.body", "body": told, "more_body": True, errors.BROKEN: why})


def _is_odd(response: httpcore.Response) -> bool:
    """Whether no server may send it on."""
    return response.status > 599 or any(_CONTROL.search(value) for _, value in response.headers)


def _of_answer(response: httpcore.Response) -> list[tuple[bytes, bytes]]:
    """The headers for the client."""
    given = [(name.lower(), value) for name, value in response.headers]
    # A length beside chunks means nothing, and where no body may be it is not the one of this answer.
    useless = response.status in (204, 304) or any(name == b"transfer-encoding" for name, _ in given)
    return _end_to_end(given, b"content-length" if useless else b"")


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


async def _nothing(body: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """No body, once the client has said that there is none."""
    async for _ in body:
        pass
    return
    yield b""


async def _client_gone(receive: Receive, sent: asyncio.Event) -> None:
    await sent.wait()
    while (await receive())["type"] != "http.disconnect":
        pass
