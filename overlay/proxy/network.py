"""How the library's pool opens and reads connections without TLS: on asyncio's own streams.

The library's own way reads on while a slow client takes nothing: on uvloop some megabytes at a time, a gigabyte for
200 clients (``tests/proxy/test_costs.py``). These streams stop at 128 KiB. They also send head and body of a request
in one piece, which saves the server a wake-up before the first token.
"""

from __future__ import annotations

import asyncio
import contextlib
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
            # Asked of an idle connection before it is used again, which is never right here.
            return True
        return self._writer.get_extra_info(info)


class Backend(httpcore.AsyncNetworkBackend):
    """Opens connections for :class:`httpcore.AsyncConnectionPool`."""

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
