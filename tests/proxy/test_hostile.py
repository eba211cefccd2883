"""The proxy between a client and a server that breaks HTTP, and between a server and a client that is none too good.

The thousand requests become ten thousand with ``PROXY_REQUESTS=10000``.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import socket
from collections.abc import Iterator

import httpx
import pytest

from tests.proxy import processes
from tests.proxy.hostile import WAYS, Hostile, hostile, marks, other
from tests.proxy.processes import Running
from tests.proxy.streams import DONE, content, finish, objects

CHAT = "/v1/chat/completions"
REQUESTS = int(os.environ.get("PROXY_REQUESTS", "1000"))


@pytest.fixture(scope="module")
def server() -> Iterator[Hostile]:
    with hostile() as one:
        yield one


@pytest.fixture(scope="module")
def proxy(server: Hostile) -> Iterator[Running]:
    with processes.proxy(server.url) as running:
        yield running
        assert not [line for line in running.lines if "Traceback" in line or "Exception" in line]


def raw(port: int, request: bytes) -> bytes:
    """All that comes until the connection is closed."""
    with socket.create_connection(("127.0.0.1", port), timeout=20) as connection:
        connection.sendall(request)
        got = b""
        while data := connection.recv(65536):
            got += data
    return got


def asking(how: str, number: int = 7, path: str = CHAT, version: str = "1.1") -> bytes:
    body = json.dumps({"how": how, "number": number}).encode()
    head = f"POST {path} HTTP/{version}\r\nHost: x\r\nConnection: close\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


def post(proxy: Running, how: str, path: str = CHAT) -> httpx.Response:
    with httpx.Client(timeout=20, trust_env=False) as client:
        return client.post(proxy.url + path, json={"how": how, "number": 7})


def test_nobody_gets_the_answer_to_another_question(proxy: Running) -> None:
    told: dict[str, int] = {}

    async def some(numbers: list[int]) -> list[tuple[int, str, set[int]]]:
        wrong = []
        async with httpx.AsyncClient(timeout=60, trust_env=False, limits=httpx.Limits(max_connections=4)) as client:
            for number in numbers:
                how = dice.choice(WAYS)
                path = dice.choice((CHAT, "/other"))
                got = b""
                try:
                    request = client.stream("POST", proxy.url + path, json={"how": how, "number": number})
                    async with request as response:
                        async for piece in response.aiter_raw():
                            got += piece
                except httpx.RemoteProtocolError:
                    pass
                told[how] = told.get(how, 0) + (marks(got) == {number})
                if marks(got) - {number}:
                    wrong.append((number, how, marks(got)))
        return wrong

    async def everyone() -> list[tuple[int, str, set[int]]]:
        workers = 16
        numbers = list(range(1, REQUESTS + 1))
        return sum(await asyncio.gather(*(some(numbers[at::workers]) for at in range(workers))), [])

    dice = random.Random(13)
    assert asyncio.run(everyone()) == []
    # The answers that are right, or right up to where they end, came.
    assert min(told[how] for how in ("right", "stream", "longer", "408", "HTTP/1.0", "chunks and a length")) > 0


@pytest.mark.parametrize("how", ["longer", "longer, later", "408", "behind the chunks", "204 with a body"])
def test_what_trails_an_answer_reaches_nobody(proxy: Running, how: str) -> None:
    with httpx.Client(timeout=20, trust_env=False) as client:
        for number in range(1, 7):
            first = client.post(proxy.url + CHAT, json={"how": how, "number": number})
            assert marks(first.content) == (set() if how.startswith("204") else {number})
            second = client.post(proxy.url + CHAT, json={"how": "right", "number": 100 + number})
            assert (second.status_code, marks(second.content)) == (200, {100 + number})
            assert other(number) not in marks(second.content)


@pytest.mark.parametrize("how", ["half a chunk", "half an event"])
@pytest.mark.parametrize("path", [CHAT, "/v1/messages"])
def test_a_break_in_an_event_leaves_no_broken_json(proxy: Running, how: str, path: str) -> None:
    head, _, body = raw(proxy.port, asking(how, path=path)).partition(b"\r\n\r\n")
    assert b"200" in head and not body.endswith(b"0\r\n\r\n")
    plain = b"".join(dechunked(body))
    events = [event for event in plain.split(b"\n\n")[:-1] if event.startswith(b"data: {")]
    # Each event that is complete can be read, and only the filter, which holds the half one back, can tell of it.
    read = [json.loads(event[6:]) for event in events]
    assert len(read) >= 1 and DONE not in plain
    assert [o["error"]["code"] for o in read if "error" in o] == ([502] if path == CHAT else [])


def dechunked(body: bytes) -> Iterator[bytes]:
    """The bytes of the chunks that are complete."""
    while body:
        size, _, rest = body.partition(b"\r\n")
        length = int(size, 16)
        if not length:
            return
        yield rest[:length]
        body = rest[length + 2 :]


def test_a_break_in_a_whole_answer_is_an_error_and_no_half_of_it(proxy: Running) -> None:
    got = post(proxy, "half an answer")
    assert got.status_code == 502 and "broke off" in got.json()["error"]["message"] and not marks(got.content)


@pytest.mark.parametrize("how", ["no answer", "half a head", "status 700", "a header with a control sign", "switching"])
def test_no_answer_is_an_error_object(proxy: Running, how: str) -> None:
    got = post(proxy, how)
    assert got.status_code == 502 and got.json()["error"]["type"] == "upstream_error"


@pytest.mark.parametrize("how", ["gzip", "deflate"])
def test_a_compressed_answer_is_decoded_and_filtered(proxy: Running, server: Hostile, how: str) -> None:
    got = post(proxy, how)
    assert content(got.content) == "<7>" and finish(got.content) == "stop" and got.content.endswith(DONE)
    assert "content-encoding" not in got.headers and "accept-encoding: identity" in server.seen[-1].lower()


@pytest.mark.parametrize("how", ["damaged gzip", "gzip that ends early"])
def test_a_damaged_compressed_answer_is_told(proxy: Running, how: str) -> None:
    got = raw(proxy.port, asking(how))
    plain = b"".join(dechunked(got.partition(b"\r\n\r\n")[2]))
    assert [o["error"]["code"] for o in objects(plain) if "error" in o] == [502] and not got.endswith(b"0\r\n\r\n")


@pytest.mark.parametrize("how", ["br", "zstd"])
def test_what_cannot_be_decoded_is_passed_on_and_told(proxy: Running, how: str) -> None:
    got = raw(proxy.port, asking(how))
    assert f"content-encoding: {how}".encode() in got and b"</think>" in got
    assert [line for line in proxy.lines if "passed on unread" in line and how in line]


def test_a_server_of_http_1_0(proxy: Running) -> None:
    got = post(proxy, "HTTP/1.0")
    assert content(got.content) == "<7>" and got.content.endswith(DONE)


@pytest.mark.parametrize(("how", "path"), [("stream", CHAT), ("stream", "/other"), ("right", CHAT)])
def test_a_client_of_http_1_0_gets_no_chunks(proxy: Running, how: str, path: str) -> None:
    head, _, body = raw(proxy.port, asking(how, path=path, version="1.0")).partition(b"\r\n\r\n")
    assert b"chunked" not in head.lower() and b"content-length: %d" % len(body) in head.lower()
    assert marks(body) == {7}
    broken = raw(proxy.port, asking("half a chunk", version="1.0"))
    assert broken.startswith(b"HTTP/1.1 502") and b"broke off" in broken


def test_head_and_answers_without_a_body(proxy: Running) -> None:
    got = raw(proxy.port, b"HEAD /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    assert got.lower().startswith(b"http/1.1 200") and got.endswith(b"\r\n\r\n")
    assert b"content-length: 5" in got.lower() and not marks(got)
    assert post(proxy, "304 with a length").status_code == 304
    assert post(proxy, "204 with a body").status_code == 204
    assert content(post(proxy, "chunks and a length").content) == "<7>"


def test_a_websocket_is_refused_in_clear_words(proxy: Running, server: Hostile) -> None:
    before = len(server.seen)
    head = "GET /v1/realtime HTTP/1.1\r\nHost: x\r\nConnection: Upgrade, close\r\nUpgrade: websocket\r\n"
    head += "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
    got = raw(proxy.port, head.encode())
    assert got.startswith(b"HTTP/1.1 501") and b"WebSockets are not passed on" in got
    assert len(server.seen) == before


@pytest.mark.parametrize(
    ("path", "forwarded"),
    [
        ("/v1/../../admin", "/admin"),
        ("/v1/%2e%2E/./admin?x=../y", "/admin?x=../y"),
        ("/v1/models/..", "/v1/"),
        ("/a%2Fb//c", "/a%2Fb//c"),
        ("/v1/..%2f..%2fadmin", None),
        ("/v1/%252e%252e/admin", None),
        ("/v1/..%5cadmin", None),
        ("/v1/..;x/admin", None),
    ],
)
def test_dot_segments_are_resolved_or_refused(
    proxy: Running, server: Hostile, path: str, forwarded: str | None
) -> None:
    before = len(server.seen)
    got = raw(proxy.port, f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
    assert got.startswith(b"HTTP/1.1 200" if forwarded else b"HTTP/1.1 400")
    assert [head.split(" ")[1] for head in server.seen[before:]] == ([forwarded] if forwarded else [])


def test_only_allowed_paths_are_passed_on(server: Hostile) -> None:
    with processes.proxy(server.url + "/here", "--allow-path", "/v1", "--allow-path", "/health") as own:
        for path, status in (
            ("/v1/models", 200),
            ("/health", 200),
            ("/v1/../admin", 403),
            ("/v10", 403),
            ("/", 403),
        ):
            got = raw(own.port, f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
            assert got.startswith(b"HTTP/1.1 %d" % status), path
        assert server.seen[-1].startswith("GET /here/health ")
