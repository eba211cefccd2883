"""A server that breaks HTTP in every way that this proxy has to stand, in a thread of this process.

What a request asks for is in its body: ``{"how": NAME, "number": N}``. Every answer, also one that nobody asked for,
says which request it belongs to, so that a client can tell its own answers from those of others.
"""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import json
import re
import threading
import zlib
from collections.abc import Iterator
from typing import Any

from tests.proxy.streams import chat

JSON = b"Content-Type: application/json\r\n"
SSE = b"Content-Type: text/event-stream\r\n"


def mark(number: int) -> str:
    return f"<{number}>"


def marks(data: bytes) -> set[int]:
    """Numbers of all the requests that are spoken of."""
    return set(map(int, re.findall(rb"<(\d+)>", data)))


def whole(number: int, head: bytes = b"", status: bytes = b"HTTP/1.1 200 OK", tag: str = "</think>") -> bytes:
    """One right answer."""
    message = {"role": "assistant", "content": f"{tag}{mark(number)}"}
    body = json.dumps({"choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}).encode()
    return b"%s\r\n%sContent-Length: %d\r\n%s\r\n%s" % (status, JSON, len(body), head, body)


def packed(data: bytes, how: str, media: bytes = SSE) -> bytes:
    head = b"HTTP/1.1 200 OK\r\n%sContent-Encoding: %s\r\nContent-Length: %d\r\n\r\n"
    return head % (media, how.encode(), len(data)) + data


def event(number: int) -> bytes:
    return b"".join(chat(["</think>", mark(number)]))


def other(number: int) -> int:
    """Whose answer a broken one is, at best."""
    return 10_000_000 + number


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


def answer(how: str, number: int) -> list[bytes | float | None]:
    """Bytes to send, seconds to wait, and None where the connection is closed."""
    stream = b"HTTP/1.1 200 OK\r\n" + SSE
    chunks = stream + b"Transfer-Encoding: chunked\r\n\r\n"
    spoken = event(number)
    lost = whole(other(number))
    late = b"HTTP/1.1 408 Request Timeout\r\nContent-Length: 16\r\nConnection: close\r\n\r\n<%d>\n" % other(number)
    ways: dict[str, list[bytes | float | None]] = {
        "right": [whole(number)],
        "stream": [chunks + chunk(spoken) + b"0\r\n\r\n"],
        "longer": [whole(number) + lost],
        "longer, later": [whole(number), 0.002, lost],
        "408": [whole(number), 0.002, late, None],
        "behind the chunks": [chunks + chunk(spoken) + b"0\r\n\r\n" + lost],
        "204 with a body": [b"HTTP/1.1 204 No Content\r\nContent-Length: 9\r\n\r\n" + lost],
        "304 with a length": [b"HTTP/1.1 304 Not Modified\r\nContent-Length: 9\r\n\r\n"],
        "half a chunk": [chunks + chunk(spoken[:-20]) + b"ff\r\nhalf", None],
        "half an event": [chunks + chunk(spoken[: spoken.index(mark(number).encode())]), None],
        "half an answer": [whole(number)[:-12], None],
        "no answer": [None],
        "half a head": [b"HTTP/1.1 200 OK\r\nContent-", None],
        "HTTP/1.0": [b"HTTP/1.0 200 OK\r\n" + SSE + b"\r\n" + spoken, None],
        "chunks and a length": [chunks[:-2] + b"Content-Length: 3\r\n\r\n" + chunk(spoken) + b"0\r\n\r\n"],
        "status 700": [whole(number, status=b"HTTP/1.1 700 Odd")],
        "a header with a control sign": [whole(number, b"X-Odd: a\x01b\r\n")],
        "two lengths": [whole(number, b"Content-Length: 5\r\n")],
        "switching": [b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n" + lost],
        "gzip": [packed(gzip.compress(spoken), "gzip")],
        "deflate": [packed(zlib.compress(spoken)[2:-4], "deflate")],
        "damaged gzip": [packed(gzip.compress(spoken)[:-9] + b"x" * 9, "gzip")],
        "gzip that ends early": [packed(gzip.compress(spoken)[:-20], "gzip")],
        "br": [packed(spoken, "br")],
        "zstd": [packed(spoken, "zstd")],
        "small pieces": [chunks, *(chunk(spoken[i : i + 7]) for i in range(0, len(spoken), 7)), b"0\r\n\r\n"],
    }  # fmt: skip
    return ways[how]


WAYS = (
    "right", "stream", "longer", "longer, later", "408", "behind the chunks", "204 with a body", "304 with a length",
    "half a chunk", "half an event", "half an answer", "no answer", "half a head", "HTTP/1.0", "chunks and a length",
    "status 700", "a header with a control sign", "two lengths", "switching", "gzip", "deflate", "damaged gzip",
    "gzip that ends early", "br", "zstd", "small pieces",
)  # fmt: skip


class Hostile:
    """``seen``: the heads of the requests, in order. ``connections``: how many there were."""

    def __init__(self) -> None:
        self.seen: list[str] = []
        self.connections = 0
        self.port = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        with contextlib.suppress(OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
                self.seen.append(head)
                length = re.search(r"(?i)content-length: (\d+)", head)
                body = await reader.readexactly(int(length[1])) if length else b"{}"
                if await self._answer(json.loads(body), head, writer):
                    break
        writer.close()

    @staticmethod
    async def _answer(asked: dict[str, Any], head: str, writer: asyncio.StreamWriter) -> bool:
        """Whether the connection is to be closed; it stays open else, whatever was agreed upon."""
        if head.startswith("HEAD "):
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n" + whole(0))
            return False
        if "how" not in asked:
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
            return False
        for step in answer(asked["how"], asked.get("number", 0)):
            if step is None:
                await writer.drain()
                return True
            if isinstance(step, float):
                await asyncio.sleep(step)
            else:
                writer.write(step)
        return False


@contextlib.contextmanager
def hostile() -> Iterator[Hostile]:
    one = Hostile()
    loop = asyncio.new_event_loop()
    ready = threading.Event()

    async def run() -> None:
        server = await asyncio.start_server(one.serve, "127.0.0.1", 0, backlog=2048)
        one.port = server.sockets[0].getsockname()[1]
        ready.set()

    def work() -> None:
        asyncio.set_event_loop(loop)
        loop.run_until_complete(run())
        loop.run_forever()

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    if not ready.wait(10):
        raise RuntimeError("the hostile server did not start")
    try:
        yield one
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
