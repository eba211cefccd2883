"""``engine-overlay proxy`` as a process, before a real server, asked over real connections."""

from __future__ import annotations

import base64
import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

from engine_overlay.proxy.request import BUDGET
from tests.proxy import processes
from tests.proxy.processes import ROOT, Running
from tests.proxy.streams import DONE, chat, content, cut_bytes, finish, objects, responses
from tests.proxy.test_stream import CALL, LOOP

CHAT = "/v1/chat/completions"
HEALTHY = chat([{"reasoning": "hm"}, "\n\n", "Hello", " <b>é😀</b>", " call", " me", CALL], finish="tool_calls")


@pytest.fixture(scope="module")
def upstream() -> Iterator[Running]:
    with processes.upstream() as running:
        yield running


@pytest.fixture(scope="module")
def proxy(upstream: Running) -> Iterator[Running]:
    with processes.proxy(upstream.url) as running:
        yield running


@pytest.fixture(scope="module")
def client() -> Iterator[httpx.Client]:
    with httpx.Client(timeout=30, trust_env=False) as one:
        yield one


def asking(chunks: list[bytes], **reply: Any) -> dict[str, Any]:
    encoded = [base64.b64encode(chunk).decode() for chunk in chunks]
    return {"stream": True, "reply": {"chunks": encoded, "base64": True, **reply}}


def seen(upstream: Running, client: httpx.Client) -> list[dict[str, Any]]:
    return client.get(upstream.url + "/seen").json()


def until(true: Callable[[], bool], seconds: float = 10.0) -> bool:
    end = time.monotonic() + seconds
    while not true():
        if time.monotonic() > end:
            return False
        time.sleep(0.05)
    return True


def raw(port: int, request: dict[str, Any], path: str = CHAT) -> socket.socket:
    """A connection on which a request was sent, read by hand."""
    body = json.dumps(request).encode()
    connection = socket.create_connection(("127.0.0.1", port), timeout=30)
    head = f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    connection.sendall(head.encode() + body)
    return connection


def read_all(connection: socket.socket) -> bytes:
    got = b""
    while data := connection.recv(65536):
        got += data
    return got


@pytest.mark.parametrize("seed", range(5))
def test_a_healthy_stream_keeps_every_byte(proxy: Running, client: httpx.Client, seed: int) -> None:
    wire = b"".join(HEALTHY).replace(b"\n\n", b"\n\n: keep-alive\n\n", 2)
    dice = random.Random(seed)
    chunks = cut_bytes(wire, [dice.randrange(len(wire)) for _ in range(40)])
    got = client.post(proxy.url + CHAT, json=asking(chunks, pause=0.001))
    assert (got.status_code, got.content) == (200, wire)
    assert got.headers["content-type"] == "text/event-stream; charset=utf-8"


def test_pieces_come_when_they_are_sent(proxy: Running, client: httpx.Client) -> None:
    arrived = []
    with client.stream("POST", proxy.url + CHAT, json=asking(HEALTHY[:6], pause=0.2)) as response:
        for piece in response.iter_raw():
            arrived.append((time.monotonic(), piece))
    assert [piece for _, piece in arrived] == HEALTHY[:6]
    gaps = [b[0] - a[0] for a, b in zip(arrived, arrived[1:], strict=False)]
    assert min(gaps) > 0.1 and max(gaps) < 1


def test_stray_tags_go_in_a_stream_and_in_a_whole_answer(proxy: Running, client: httpx.Client) -> None:
    got = client.post(proxy.url + CHAT, json=asking(chat(["hin", "k>", "\n\nHello.", "</th", "ink>"]), pause=0.001))
    assert content(got.content) == "\n\nHello." and got.content.endswith(DONE)
    data = {
        "choices": [{"index": 0, "message": {"content": "</think>\n\né."}, "finish_reason": "stop"}],
        "usage": {"a": 1},
    }
    body = json.dumps(data, indent=1).encode()
    headers = [["content-type", "application/json"], ["content-length", str(len(body))], ["x-own", "1"]]
    got = client.post(proxy.url + CHAT, json=asking([body[:20], body[20:]], headers=headers))
    assert got.json()["choices"][0]["message"]["content"] == "\n\né." and got.json()["usage"] == {"a": 1}
    assert int(got.headers["content-length"]) == len(got.content) and got.headers["x-own"] == "1"
    healthy = body.replace(b"</think>", b"")
    headers[1][1] = str(len(healthy))
    got = client.post(proxy.url + CHAT, json=asking([healthy], headers=headers))
    assert (got.content, got.headers["content-length"]) == (healthy, str(len(healthy)))


def test_responses_and_completions_are_filtered_and_other_paths_are_not(proxy: Running, client: httpx.Client) -> None:
    sent = responses(["</think>", "\n\nHi."], "hm")
    got = client.post(proxy.url + "/v1/responses", json=asking(sent))
    assert objects(got.content)[-1]["response"]["output"][-1]["content"][0]["text"] == "\n\nHi."
    text = b'data: {"choices":[{"index":0,"text":"hink>Hi","finish_reason":"stop"}]}\n\n'
    got = client.post(proxy.url + "/v1/completions", json={"prompt": "Say hi", **asking([text, DONE])})
    assert b'"text":"Hi"' in got.content
    for path in ("/v1/messages", "/generate", "/v1/chat/completions/x"):
        assert client.post(proxy.url + path, json=asking(chat(["</think>", "A"]))).content == b"".join(
            chat(["</think>", "A"])
        )


def test_everything_else_is_passed_on(proxy: Running, upstream: Running, client: httpx.Client) -> None:
    error = b'{"error":{"message":"no </think>"}}'
    got = client.post(
        proxy.url + CHAT, json=asking([error], status=400, headers=[["content-type", "application/json"]])
    )
    assert (got.status_code, got.content) == (400, error)
    packed = b"what the standard library cannot decode"
    headers = [
        ["content-type", "text/event-stream"],
        ["content-encoding", "br"],
        ["set-cookie", "a=1"],
        ["set-cookie", "b=2"],
    ]
    with client.stream("POST", proxy.url + CHAT, json=asking([packed], headers=headers)) as response:
        assert b"".join(response.iter_raw()) == packed
        assert response.headers.get_list("set-cookie") == ["a=1", "b=2"]
    sent = {"X-Own": "ü".encode(), "Connection": "keep-alive, x-hop", "X-Hop": "1", "Authorization": "Bearer k"}
    got = client.put(
        proxy.url + "/a%2Fb/c?x=1&y=%20", content=iter([b"12", b"34"]), headers={**sent, "Accept-Encoding": "br"}
    )
    assert got.content == b"ok"
    last = seen(upstream, client)[-1]
    assert (last["method"], last["target"], last["body"]) == ("PUT", "/a%2Fb/c?x=1&y=%20", "1234")
    got_headers = dict(last["headers"])
    assert got_headers["authorization"] == "Bearer k" and got_headers["accept-encoding"] == "br"
    assert got_headers["host"] == f"127.0.0.1:{upstream.port}" and got_headers["x-forwarded-for"] == "127.0.0.1"
    assert got_headers["x-forwarded-host"] == f"127.0.0.1:{proxy.port}" and "x-hop" not in got_headers
    client.post(proxy.url + CHAT, json=asking([DONE]), headers={"Accept-Encoding": "gzip"})
    assert dict(seen(upstream, client)[-1]["headers"])["accept-encoding"] == "identity"
    assert client.head(proxy.url + "/health").status_code == 200


def test_a_loop_is_ended_and_its_request_cancelled(proxy: Running, upstream: Running, client: httpx.Client) -> None:
    sent = chat(LOOP, finish=None)[1:-2]
    got = client.post(proxy.url + CHAT, json=asking(sent, repeat=True, pause=0.002))
    assert got.content.endswith(DONE) and finish(got.content) == "length" and content(got.content).strip() == ""
    assert until(lambda: seen(upstream, client)[-1]["end"] == "client left")
    assert seen(upstream, client)[-1]["sent"] < 80
    assert any("a stream was ended" in line for line in proxy.lines)


@pytest.mark.parametrize("path", [CHAT, "/other"])
def test_a_client_that_leaves_ends_its_request(
    proxy: Running, upstream: Running, client: httpx.Client, path: str
) -> None:
    pieces = chat(["word "])[1:2]
    connection = raw(proxy.port, asking(pieces, repeat=True, pause=0.02), path)
    assert connection.recv(10)
    number = len(seen(upstream, client)) - 1
    connection.close()
    assert until(lambda: seen(upstream, client)[number]["end"] == "client left")


def test_a_client_that_leaves_while_the_server_thinks(proxy: Running, client: httpx.Client) -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as silent,
        processes.proxy(f"http://127.0.0.1:{silent.getsockname()[1]}") as own,
    ):
        connection = raw(own.port, asking([]))
        upstream_side = silent.accept()[0] if "does not answer" in "".join(own.lines) else _second(silent)
        upstream_side.settimeout(10)
        assert upstream_side.recv(10)
        connection.close()
        assert read_all(upstream_side).endswith(b"}")


def _second(silent: socket.socket) -> socket.socket:
    silent.accept()[0].close()
    return silent.accept()[0]


def test_a_slow_client_is_waited_for_and_nothing_piles_up(
    proxy: Running, upstream: Running, client: httpx.Client
) -> None:
    piece = chat(["word " * 2000])[1]
    before, number = proxy.memory(), len(seen(upstream, client))
    connection = raw(proxy.port, asking([piece], repeat=True))
    assert until(lambda: len(seen(upstream, client)) > number and seen(upstream, client)[number]["sent"] > 20)
    time.sleep(1.5)
    sent = seen(upstream, client)[number]["sent"]
    time.sleep(0.5)
    # The server waits as well: what fits into buffers of the system and of both ends was sent, and then no more.
    assert seen(upstream, client)[number]["sent"] == sent
    assert proxy.memory() - before < 30e6
    got = connection.recv(1 << 20)
    assert got.startswith(b"HTTP/1.1 200")
    connection.close()
    assert until(lambda: seen(upstream, client)[number]["end"] == "client left")


def test_the_server_is_killed_in_the_middle(client: httpx.Client) -> None:
    with processes.upstream() as server, processes.proxy(server.url) as own:
        pieces = chat(["Hello.", "</thi"])[:3]
        got = read_all(raw(own.port, asking(pieces, die=True)))
        # All that had come, what was held too; then an event that tells; and no proper end of the body.
        body = got.partition(b"\r\n\r\n")[2]
        told = [o for o in objects(body.replace(b"\r\n", b"\n")) if "error" in o]
        assert content(body) == "Hello.</thi" and told[0]["error"]["code"] == 502
        assert not got.endswith(b"0\r\n\r\n") and DONE not in got
        after = client.post(own.url + CHAT, json=asking([DONE]))
        assert after.status_code == 502 and "cannot be reached" in after.json()["error"]["message"]
        assert client.get(own.url + "/health").status_code == 502
        assert any("broke off its answer" in line for line in own.lines)
        assert not [line for line in own.lines if "Traceback" in line or "ASGI" in line]


def test_a_budget_is_put_in(upstream: Running, client: httpx.Client) -> None:
    with processes.proxy(upstream.url + "/v1", "--thinking-token-budget", "99") as own:
        for path, request, budget in ((CHAT, {}, 99), (CHAT, {BUDGET: 5}, 5), ("/v1/responses", {}, None)):
            assert client.post(own.url + path, json={**asking([DONE]), **request}).content == DONE
            last = seen(upstream, client)[-1]
            assert json.loads(last["body"]).get(BUDGET) == budget and last["target"] == path
            assert int(dict(last["headers"])["content-length"]) == len(last["body"])


def test_many_streams_at_once_lose_and_mix_nothing(proxy: Running) -> None:
    import asyncio

    async def one(client: httpx.AsyncClient, number: int) -> bool:
        wire = chat([f"{number} word {n} " for n in range(30)])
        got = await client.post(proxy.url + CHAT, json=asking(wire, pause=0.01))
        return got.content == b"".join(wire)

    async def everyone() -> list[bool]:
        limits = httpx.Limits(max_connections=None)
        async with httpx.AsyncClient(timeout=60, trust_env=False, limits=limits) as client:
            return await asyncio.gather(*(one(client, number) for number in range(100)))

    assert all(asyncio.run(everyone()))


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_it_ends_when_told_to_with_a_stream_open(upstream: Running, client: httpx.Client, how: signal.Signals) -> None:
    with processes.proxy(upstream.url) as own:
        number = len(seen(upstream, client))
        connection = raw(own.port, asking([b": x\n\n"], repeat=True, pause=0.05))
        assert connection.recv(10)
        own.process.send_signal(how)
        assert own.process.wait(15) in (0, -signal.SIGTERM)
        assert until(lambda: seen(upstream, client)[number]["end"] == "client left")
        assert not [line for line in own.lines if "Traceback" in line or "Error" in line]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--upstream", "127.0.0.1:8000"], "does not begin with http://"),
        (["--upstream", "http://"], "names no host"),
        (["--upstream", "http://a:99999"], "is no URL"),
        (["--upstream", "http://a?x=1"], "has more than scheme"),
        ([], "--upstream"),
        (["--upstream", "http://a", "--port", "99999"], "more than 65535"),
        (["--upstream", "http://a", "--port", "x"], "not a whole number"),
        (["--upstream", "http://a", "--empty-thoughts", "-1"], "empty-thoughts"),
        (["--upstream", "http://a", "--empty-thought", "1"], "did you mean --empty-thoughts?"),
        (["--upstream", "http://a", "--call-tag", "<x>"], "is no name of a tag"),
        (["--upstream", "http://a", "--host", "no.such.host.invalid"], "cannot listen"),
        (["--upstream", "http://a", "extra"], "unknown argument extra"),
    ],
)
def test_wrong_options_are_one_line(arguments: list[str], told: str) -> None:
    _refused(arguments, told)


def test_a_port_in_use_is_one_line(proxy: Running) -> None:
    _refused(["--upstream", "http://a", "--port", str(proxy.port)], "Address already in use")


def _refused(arguments: list[str], told: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "engine_overlay.cli", "proxy", *arguments],
        cwd=ROOT, env=os.environ.copy(), capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (2, "")
    assert told in done.stderr and done.stderr.count("\n") == 1 and done.stderr.startswith("engine-overlay: proxy: ")
