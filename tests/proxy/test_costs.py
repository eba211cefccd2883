"""What a stranger can make the filter and the proxy cost: in time, in memory, and in depth.

The 40 slow clients become 200 with ``PROXY_CLIENTS=200``.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import os
import socket
import time
from collections.abc import Iterator
from typing import Any

import pytest

from engine_overlay.proxy import StrayTagFilter, decoding, request, sse
from engine_overlay.proxy.edges import End, clean
from engine_overlay.proxy.options import Options
from engine_overlay.proxy.request import BUDGET, CHAT, COMPLETIONS, RESPONSES, Asked
from engine_overlay.proxy.room import Room
from tests.proxy import processes
from tests.proxy.streams import DONE, chat, content, delta, event, responses, stream, through
from tests.proxy.test_middleware import SSE, STRAY, Server, call, text
from tests.proxy.test_proxy import asking, raw
from tests.proxy.test_stream import LOOP

CLIENTS = int(os.environ.get("PROXY_CLIENTS", "40"))
DEEP = b'{"n": 1, "messages": ' + b"[" * 200_000 + b"]" * 200_000 + b"}"


def seconds(work: Any) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start


def test_an_event_in_small_pieces_costs_what_it_is_long() -> None:
    def feed(size: int) -> None:
        splitter = sse.Splitter()
        wire = b"data: " + b"x" * size + b"\n\n"
        got = [found for at in range(0, len(wire), 64) for found in splitter.feed(wire[at : at + 64])]
        assert got == [wire]

    # Quadratic work would be a hundred times as much for ten times the bytes.
    few = min(seconds(lambda: feed(700_000)) for _ in range(3))
    assert seconds(lambda: feed(7_000_000)) < 40 * max(few, 0.01)


@pytest.mark.parametrize("first", [LOOP * 8, ["word"]])
def test_many_choices_cost_what_is_in_their_events(first: list[str]) -> None:
    def work(size: int) -> list[bytes]:
        sent = [event(delta(0, content=piece)) for piece in first]
        sent += [event(delta(index, content="word")) for index in range(1, size)]
        both = {"choices": [delta(index, content=".</thi")["choices"][0] for index in range(100)]}
        return [*sent, event(both), *[b": keep-alive\n\n", DONE] * (size // 10)]

    few, many = work(2_000), work(20_000)
    assert seconds(lambda: through(many)) < 30 * min(seconds(lambda: through(few)) for _ in range(3))


def test_choices_beyond_the_limit_pass_as_they_are() -> None:
    one = stream(max_choices=2)
    sent = [event(delta(index, content="</think>")) for index in range(4)]
    assert [bool(one.feed(found)) for found in sent] == [False, False, False, False]
    assert one.close() == b"".join(sent)
    sent = [event(delta(index, content=piece)) for piece in ("</think>", "A") for index in range(4)] + [DONE]
    out = through(sent, asked=Asked(choices=4), max_choices=2)
    assert [content(out, index) for index in range(4)] == ["A", "A", "</think>A", "</think>A"]
    # Nobody knows whether the others have finished, so the stream is not ended for them.
    loops = [event(delta(index, content=piece)) for piece in LOOP * 8 for index in range(3)]
    assert not through(loops, max_choices=2).endswith(DONE)


def test_many_tags_cost_what_they_are_long() -> None:
    def deltas(size: int) -> float:
        wire = chat([*["call> "] * size, *["word "] * size], usage=False)
        return seconds(lambda: through(wire, empty_thoughts=0))

    assert deltas(16_000) < 18 * min(deltas(2_000) for _ in range(3))

    def whole(size: int) -> float:
        return seconds(lambda: clean("</think>" * size + "A", End.WHOLE))

    assert whole(160_000) < 20 * min(whole(20_000) for _ in range(3))


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS, RESPONSES])
@pytest.mark.parametrize("budget", [False, True])
@pytest.mark.parametrize("body", [DEEP, DEEP.replace(b'"messages"', b'"thinking_token_budget" : 1, "prompt"')])
def test_a_nested_request_is_the_servers_to_refuse(
    monkeypatch: pytest.MonkeyPatch, path: str, budget: bool, body: bytes
) -> None:
    monkeypatch.setenv("ENGINE_OVERLAY_PROXY", f"{BUDGET}=9" if budget else "")
    server = Server(STRAY)
    got = call(server, body, path=path)
    assert got[0]["status"] == 200 and server.body.endswith(body[1:])


@pytest.mark.parametrize("depth", [*range(100, 1000, 100), *range(940, 1000, 4), 5000])
def test_no_depth_of_an_answer_ends_it(depth: int) -> None:
    nested = "[" * depth + "]" * depth
    said = json.dumps(delta(0, content="</think>A"))[:-1] + f', "more": {nested}}}'
    wire = [b"data: " + said.encode() + b"\n\n", DONE]
    assert through(wire).endswith(DONE)
    body = b'{"choices": [{"message": {"content": "</think>A"}}], "more": %s}' % nested.encode()
    assert text(call(Server([body], [(b"content-type", b"application/json")]))).endswith(b"}")
    assert request.read(COMPLETIONS, b'{"prompt": %s}' % nested.encode()) is not None


ODD = [None, 5, "x", [], {}, [[]], [{}], True, -1, 10**30, 1.5, {"a": []}, [5, "x", None, [1]]]


@pytest.mark.parametrize("kind", [CHAT, COMPLETIONS, RESPONSES])
def test_no_value_in_an_event_ends_a_stream(kind: str) -> None:
    kinds = [json.loads(found.partition(b"data: ")[2])["type"] for found in responses(["A"], "hm")]
    names = ("index", "delta", "text", "finish_reason", "output_index", "content_index", "part", "item", "response")
    for odd in ODD:
        for name in (*names, "sequence_number", "output", "choices", "usage", "error", "type"):
            one = {"index": 0, "delta": {"content": "</think>A"}, "text": "</think>A", name: odd}
            bodies = [{"choices": [one]}, {"choices": one.get("choices", odd)}, {"choices": [odd, one]}]
            bodies += [{"type": known, "delta": "</think>A", "response": {"output": odd}, name: odd} for known in kinds]
            wire = [event(body) for body in bodies]
            assert through([*wire, DONE], kind).endswith(DONE)
            body = json.dumps({"choices": odd, "output": odd, name: odd}).encode()
            got = call(Server([body], [(b"content-type", b"application/json")]), path=kind)
            assert text(got) == body


def test_all_requests_together_hold_no_more_than_there_is_room_for() -> None:
    room = Room(100)
    first, second = room.share(), room.share()
    assert first.hold(60) and not second.hold(50) and second.hold(40) and not first.hold(61)
    first.release()
    assert second.hold(100) and room.used == 100
    second.release()
    assert room.used == 0


@pytest.mark.parametrize("chunks", [STRAY, [b"data: " + b"x" * 5000] * 3, [b'{"choices": 1}']])
def test_what_there_is_no_room_for_is_passed_on_unread(chunks: list[bytes]) -> None:
    media = b"application/json" if chunks[0][:1] == b"{" else b"text/event-stream"
    server = Server(chunks, [(b"content-type", media)])
    app = StrayTagFilter(server, Options(max_memory=8))
    assert ask(app, b"x" * 50) == b"".join(chunks)
    assert server.body == b"x" * 50 and app.room.used == 0


@pytest.mark.parametrize(
    ("chunks", "size"), [(STRAY, 2), (chat(LOOP * 99), 2), ([b"data: x"], 999), ([b"data: x"], 2), (chat(["."]), 499)]
)
def test_room_is_given_back_by_every_request(chunks: list[bytes], size: int) -> None:
    app = StrayTagFilter(Server(chunks), Options(max_body=500))
    assert ask(app, b"x" * size) and app.room.used == 0


def ask(app: StrayTagFilter, body: bytes) -> bytes:
    """What a client gets for this body."""
    asked = [{"type": "http.request", "body": body, "more_body": False}]
    got: list[bytes] = []

    async def receive() -> Any:
        return asked.pop() if asked else await asyncio.Event().wait()

    async def send(message: Any) -> None:
        got.append(message.get("body", b""))

    asyncio.run(app({"type": "http", "method": "POST", "path": CHAT, "headers": []}, receive, send))
    return b"".join(got)


def test_a_small_compressed_answer_is_not_a_large_one_in_memory() -> None:
    wire = gzip.compress(b"data: " + b"x" * 50_000_000 + b"\n\n")
    sizes = [len(piece) for piece in decoding.Decoder(b"gzip").feed(wire)]
    assert sum(sizes) == 50_000_008 and max(sizes) <= decoding.PIECE
    got = call(Server([wire], [*SSE, (b"content-encoding", b"gzip")]))
    # More than one event may be long: it is passed on as it comes, decoded.
    assert len(text(got)) == 50_000_008


@pytest.fixture(scope="module")
def slow() -> Iterator[tuple[processes.Running, processes.Running]]:
    with processes.upstream() as server, processes.proxy(server.url) as own:
        yield server, own


def test_memory_for_slow_clients_is_bounded(slow: tuple[processes.Running, processes.Running]) -> None:
    _, own = slow
    piece = chat(["word " * 12_000])[1]
    before = own.memory()
    connections: list[socket.socket] = [raw(own.port, asking([piece], repeat=True)) for _ in range(CLIENTS)]
    try:
        most = 0
        for _ in range(CLIENTS // 5):
            time.sleep(0.2)
            most = max(most, own.memory() - before)
        print(f"\n{CLIENTS} slow clients: {most / 1e6:.0f} MB more")
        assert all(connection.recv(12).startswith(b"HTTP/1.1 200") for connection in connections)
        assert most < CLIENTS * 1e6
    finally:
        for connection in connections:
            connection.close()
