"""Connections to one server: httpcore's HTTP on asyncio's own streams, and a pool for hundreds of them.

The general backend sends head and body of a request apart, which costs a third of the time to the first token. The
general pool looks at every pair of idle connections whenever one is taken or given back: a second for 200 streams.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import Iterable
from typing import Any

import httpcore

MAX_UNSENT = 64 * 1024
"""Bytes of a request that are collected before they are sent."""


class Stream(httpcore.AsyncNetworkStream):
    """What is written is sent when it is much, or when the answer is asked for."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._unsent: list[bytes] = []
        self._size = 0

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        try:
            if self._unsent:
                await self._send()
            if timeout is None:
                return await self._reader.read(max_bytes)
            return await asyncio.wait_for(self._reader.read(max_bytes), timeout)
        except asyncio.TimeoutError as error:
            raise httpcore.ReadTimeout from error
        except OSError as error:
            raise httpcore.ReadError(str(error)) from error

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        if not buffer:
            return
        self._unsent.append(buffer)
        self._size += len(buffer)
        if self._size > MAX_UNSENT:
            try:
                await self._send()
            except OSError as error:
                raise httpcore.WriteError(str(error)) from error

    async def _send(self) -> None:
        data, self._unsent, self._size = b"".join(self._unsent), [], 0
        self._writer.write(data)
        # Waits only while the server takes nothing more.
        await self._writer.drain()

    async def aclose(self) -> None:
        with contextlib.suppress(OSError):
            self._writer.close()

    def get_extra_info(self, info: str) -> Any:
        if info == "is_readable":
            # Asked of an idle connection: it can only be the end of it.
            return self._reader.at_eof() or self._writer.transport.is_closing()
        return self._writer.get_extra_info(info)


class Pool:
    """As many connections as there are requests; idle ones are used again for ``idle_seconds``, the latest first."""

    def __init__(self, url: httpcore.URL, idle_seconds: float) -> None:
        self._origin, self._idle_seconds = url.origin, idle_seconds
        self._backend = Backend() if url.scheme == b"http" else None
        # The system's certificates, or those that SSL_CERT_FILE names.
        self._tls = ssl.create_default_context() if url.scheme == b"https" else None
        self._idle: list[httpcore.AsyncHTTPConnection] = []

    async def ask(self, request: httpcore.Request) -> tuple[httpcore.Response, httpcore.AsyncHTTPConnection]:
        """The answer, to be read, and the connection, to be given :meth:`back`. Raises httpcore's errors."""
        connection = await self._take()
        try:
            return await connection.handle_async_request(request), connection
        except BaseException:
            await self.back(connection)
            raise

    async def back(self, connection: httpcore.AsyncHTTPConnection) -> None:
        """Keep the connection for the next request if its answer was read to the end, else close it."""
        if connection.is_idle():
            self._idle.append(connection)
            await self._close_expired()
        else:
            await connection.aclose()

    async def aclose(self) -> None:
        while self._idle:
            await self._idle.pop().aclose()

    async def _take(self) -> httpcore.AsyncHTTPConnection:
        while self._idle:
            connection = self._idle.pop()
            if connection.is_idle() and not connection.has_expired():
                return connection
            await connection.aclose()
        return httpcore.AsyncHTTPConnection(
            origin=self._origin,
            ssl_context=self._tls,
            keepalive_expiry=self._idle_seconds,
            network_backend=self._backend,
        )

    async def _close_expired(self) -> None:
        # The first one has waited longest.
        while self._idle and self._idle[0].has_expired():
            await self._idle.pop(0).aclose()


class Backend(httpcore.AsyncNetworkBackend):
    """TCP without TLS."""

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        try:
            # Asyncio sets TCP_NODELAY by itself.
            return Stream(*await asyncio.wait_for(asyncio.open_connection(host, port), timeout))
        except asyncio.TimeoutError as error:
            raise httpcore.ConnectTimeout from error
        except OSError as error:
            raise httpcore.ConnectError(error.strerror or str(error)) from error

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
