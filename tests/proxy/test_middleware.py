"""``StrayTagFilter`` around an application in this process: what it passes, holds, cancels and says."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from engine_overlay.proxy import StrayTagFilter, middleware, request
from tests.proxy.processes import ROOT
from tests.proxy.streams import DONE, chat, content, delta, event, finish
from tests.proxy.test_stream import LOOP

SSE = [(b"content-type", b"text/event-stream"), (b"content-length", b"999"), (b"x-own", b"1")]
STRAY = chat(["</think>", "Hi."])


class Server:
    """An application that answers with ``chunks`` and notes what it got and how it ended.

    ``way``: it hears of a client that left by ``receive``, by an error from ``send``, or not at all.
    """

    def __init__(self, chunks: list[bytes], headers: Any = SSE, fails: Exception | None = None) -> None:
        self.chunks, self.headers, self.fails = chunks, headers, fails
        self.body, self.scope, self.end, self.sent = b"", {}, "", 0
        self.way = "receive"

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.scope = scope
        while True:
            message = await receive()
            self.body += message.get("body", b"")
            if not message.get("more_body"):
                break
        work = asyncio.ensure_future(self.answer(send))
        gone = asyncio.ensure_future(receive() if self.way == "receive" else asyncio.Event().wait())
        try:
            await asyncio.wait((work, gone), return_when=asyncio.FIRST_COMPLETED)
        finally:
            left = not work.done()
            for task in (work, gone):
                task.cancel()
            await asyncio.gather(work, gone, return_exceptions=True)
        self.end = "cancelled" if left else "finished"
        work.result() if not left else None

    async def answer(self, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self.headers})
        for chunk in self.chunks:
            await asyncio.sleep(0.001)
            await send({"type": "http.response.body", "body": chunk, "more_body": True})
            self.sent += 1
        if self.fails:
            raise self.fails
        await send({"type": "http.response.body", "body": b"", "more_body": False})


def call(server: Server, body: bytes = b"{}", path: str = request.CHAT, pieces: int = 1) -> list[dict[str, Any]]:
    """The messages that a client gets."""
    size = -(-len(body) // pieces) or 1
    parts = [body[i : i + size] for i in range(0, len(body), size)]
    asked = [{"type": "http.request", "body": p, "more_body": n < len(parts)} for n, p in enumerate(parts, 1)]
    got: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        if asked:
            return asked.pop(0)
        await asyncio.Event().wait()
        raise AssertionError

    async def send(message: dict[str, Any]) -> None:
        got.append(message)

    headers = [(b"content-length", str(len(body)).encode())]
    spec = "2.4" if server.way == "send" else "2.3"
    scope = {"type": "http", "method": "POST", "path": path, "headers": headers, "asgi": {"spec_version": spec}}
    try:
        asyncio.run(StrayTagFilter(server)(scope, receive, send))
    except ValueError as error:
        got.append({"type": "raised", "error": error})
    return got


def text(messages: list[dict[str, Any]]) -> bytes:
    return b"".join(m.get("body", b"") for m in messages if m["type"] == "http.response.body")


@pytest.fixture(autouse=True)
def clean(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith("ENGINE_OVERLAY"):
            monkeypatch.delenv(name)


def test_a_stream_is_filtered_and_says_no_length() -> None:
    got = call(Server(STRAY))
    assert got[0]["headers"] == [(b"content-type", b"text/event-stream"), (b"x-own", b"1")]
    assert content(text(got)) == "Hi." and got[-1] == {"type": "http.response.body", "body": b"", "more_body": False}


def test_off_is_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ENGINE_OVERLAY", "off")
    monkeypatch.setenv("ENGINE_OVERLAY_PROXY", "thinking_token_budget=9")
    server = Server(STRAY)
    got = call(server)
    assert (text(got), got[0]["headers"], server.body) == (b"".join(STRAY), SSE, b"{}")


def test_options_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ENGINE_OVERLAY_PROXY", "thinking_token_budget=9,empty_thoughts=2")
    server = Server(chat(LOOP * 9))
    out = text(call(server, b'{"messages": []}', pieces=3))
    assert server.body == b'{"thinking_token_budget":9,"messages": []}'
    assert dict(server.scope["headers"])[b"content-length"] == str(len(server.body)).encode()
    assert out.endswith(DONE) and out.count(b"</think>") == 0 and server.sent < 20


def test_a_wrong_option_is_one_line_and_the_server_serves(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("ENGINE_OVERLAY_PROXY", "empty_thought=2")
    monkeypatch.setattr(logging.getLogger("engine_overlay"), "propagate", True)
    assert content(text(call(Server(STRAY)))) == "Hi."
    assert [r.getMessage() for r in caplog.records if "did you mean empty_thoughts?" in r.getMessage()]


@pytest.mark.parametrize("way", ["receive", "send", "not at all"])
def test_a_loop_ends_the_server(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(middleware, "STOP_SECONDS", 0.1)
    server = Server(chat(LOOP * 1000))
    server.way = way
    got = call(server)
    assert finish(text(got)) == "length" and got[-1]["more_body"] is False
    # What says nothing of its end was cancelled from outside.
    assert server.end == {"receive": "cancelled", "send": "finished", "not at all": ""}[way]
    assert server.sent < (40 if way != "not at all" else 300)


def test_what_is_held_leaves_before_the_servers_error_does() -> None:
    got = call(Server(chat(["Done.", "</th"])[:3], fails=ValueError("broken")))
    assert content(text(got)) == "Done.</th"
    assert got[-1]["type"] == "raised" and str(got[-1]["error"]) == "broken"
    half = b'{"choices": [{"message": {"content": "</think>x"}'
    got = call(Server([half], [(b"content-type", b"application/json")], fails=ValueError("broken")))
    assert text(got) == half and got[-1]["type"] == "raised"


@pytest.mark.parametrize("limit", [10, 10_000])
def test_a_whole_answer_that_is_too_long_is_passed_on(monkeypatch: pytest.MonkeyPatch, limit: int) -> None:
    monkeypatch.setenv("ENGINE_OVERLAY_PROXY", f"max_body={limit}")
    body = json.dumps({"choices": [{"message": {"content": "</think>x"}, "finish_reason": "stop"}]}).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    got = call(Server([body[:30], body[30:]], headers), b"{}")
    assert int(dict(got[0]["headers"])[b"content-length"]) == len(text(got))
    assert (text(got) == body) == (limit == 10)


def test_a_request_that_is_too_long_is_passed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ENGINE_OVERLAY_PROXY", f"max_body={10}")
    server = Server(STRAY)
    assert text(call(server, b"x" * 100, pieces=7)) == b"".join(STRAY) and server.body == b"x" * 100


@pytest.mark.parametrize(
    "change",
    [
        lambda h: [*h, (b"content-encoding", b"br")],
        lambda h: [(b"content-type", b"application/x-ndjson")],
        lambda h: [],
    ],
)
def test_what_is_not_for_the_filter_is_not_touched(change: Callable[[Any], Any]) -> None:
    headers = change(SSE)
    got = call(Server(STRAY, headers))
    assert (got[0]["headers"], [m["body"] for m in got[1:]]) == (headers, [*STRAY, b""])


def test_a_healthy_stream_is_passed_message_by_message() -> None:
    sent = chat(["Hello", " world", " `</think>`", "."])
    got = call(Server(sent))
    assert [m["body"] for m in got[1:]] == [*sent, b""]
    glued = [b"".join(sent[:3]), b"".join(sent[3:5]) + b"dat", b"a: {}\n\n"]
    assert text(call(Server(glued))) == b"".join(glued)


def test_an_unfinished_event_at_the_end_is_passed_on() -> None:
    sent = [event(delta(content="A")), b'data: {"choices": [']
    assert text(call(Server(sent))) == b"".join(sent)


def test_the_middleware_needs_no_package() -> None:
    code = (
        "import sys, engine_overlay.proxy; "
        "sys.exit(bool({'httpcore', 'httpx', 'uvicorn', 'starlette', 'anyio'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, timeout=60, check=False).returncode == 0
