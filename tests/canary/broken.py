"""A server that answers rightly, or breaks its answers in one way: what no engine can be made to do.

The first folder of the address names the way, as in ``http://127.0.0.1:1234/no-done/v1``; see :data:`WAYS`. The request
that comes before a run ("Say hello.") is always answered rightly, unless the way is about that.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import uvicorn

from engine_overlay.canary.questions import TYPES

HEAD = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1796024956, "model": "made-up"}
SSE = [(b"content-type", b"text/event-stream; charset=utf-8")]
JSON = [(b"content-type", b"application/json")]
REFUSED = "thinking_token_budget is set but reasoning_config is not configured."
HANG = 30.0

WAYS = {
    "healthy": set(),
    "no-done": {"no [DONE]"},
    "no-finish": {"no finish_reason"},
    "cut-event": {"broken event"},
    "no-json": {"broken event"},
    "wrong-index": {"broken call"},
    "error-event": {"server error"},
    "after-finish": {"out of order"},
    "two-finishes": {"out of order"},
    "after-done": {"out of order"},
    "breaks-off": {"broke off"},
    "status-500": {"server error"},
    "no-stream": {"no stream"},
    "page": {"no stream", "unreadable answer"},
    "hangs": {"silence"},
    "hangs-in-stream": {"silence"},
    "mixed": {"answers mixed up"},
    "no-calls": {"no calls"},
    "wrong-finish": {"wrong finish"},
    "undeclared": {"undeclared call"},
    "no-id": {"broken call"},
    "no-name": {"broken call"},
    "same-id": {"broken call"},
    "as-objects": {"invalid arguments"},
    "double-brace": {"invalid arguments"},
    "truncated": {"invalid arguments"},
    "as-strings": {"wrong type"},
    "lost": {"lost arguments"},
    "tag-in-value": {"tag in arguments"},
    "no-required-call": {"call left out"},
    "budget-refused": {"budget refused"},
    "budget-ignored": {"budget exceeded"},
}
"""Way to break an answer -> the kinds that must be found."""

GENTLE = ("busy", "old-names", "no-tools", "no-thoughts", "refuses-budget", "declines", "reasoning-content", "parts",
          "no-index", "other-index", "refuses")  # fmt: skip
"""Ways in which a server may differ without a fault."""


class Reply:
    """A right answer to a request, to be bent."""

    def __init__(self, body: dict[str, Any]) -> None:
        said = body["messages"][-1]["content"]
        word = re.search(r"code word (w\w+)", said)
        self.reasoning: str = "They ask for something."
        self.content: Any = f"{word.group(1) if word else 'Well'}. It is as it is."
        self.calls: list[dict[str, Any]] = []
        self.finish: str | None = "stop"
        self.refusal: str | None = None
        tools = body.get("tools") or []
        if tools:
            name = tools[0]["function"]["name"]
            kind = name.removeprefix("record_")
            arguments = json.dumps({"value": TYPES[kind][1]})
            self.content, self.finish = "", "tool_calls"
            self.calls = [{"id": "call-1", "type": "function", "function": {"name": name, "arguments": arguments}}]

    def deltas(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = [{"role": "assistant", "content": ""}]
        found += [{"reasoning": piece} for piece in re.findall(r"\S+\s*", self.reasoning)]
        found += [{"content": piece} for piece in re.findall(r"\S+\s*", self.content)]
        for index, call in enumerate(self.calls):
            said = call["function"]
            first = {"index": index, "id": call["id"], "type": "function", "function": {"name": said["name"]}}
            found.append({"tool_calls": [first]})
            text = said["arguments"]
            half = len(text) // 2
            for part in (text[:half], text[half:]) if isinstance(text, str) else (text,):
                found.append({"tool_calls": [{"index": index, "function": {"arguments": part}}]})
        return found

    def events(self) -> list[bytes]:
        events = [_event(_chunk(delta)) for delta in self.deltas()]
        if self.finish:
            events.append(_event(_chunk({}, self.finish)))
        events.append(_event(HEAD | {"choices": [], "usage": {"completion_tokens": len(events)}}))
        return [*events, b"data: [DONE]\n\n"]

    def whole(self) -> bytes:
        message = {"role": "assistant", "content": self.content, "reasoning": self.reasoning, "tool_calls": self.calls}
        message["refusal"] = self.refusal
        choice = {"index": 0, "message": message, "finish_reason": self.finish}
        more = {"object": "chat.completion", "choices": [choice], "usage": {"completion_tokens": 20}}
        return json.dumps(HEAD | more).encode()


def bend(way: str, body: dict[str, Any], reply: Reply) -> tuple[int, list[bytes], bool]:
    """Status, pieces of the body, and whether the connection then breaks."""
    if way in ("status-500", "busy"):
        return (500 if way == "status-500" else 429), [b'{"error": {"message": "it went wrong"}}'], False
    if way == "page":
        return 200, [b"<html>Welcome to the gateway</html>"], False
    if way in ("budget-refused", "refuses-budget", "no-thoughts") and "thinking_token_budget" in body:
        said = REFUSED if way != "refuses-budget" else "Unrecognized request argument: thinking_token_budget"
        return 400, [json.dumps({"error": {"message": said, "code": 400}}).encode()], False
    if way == "no-tools" and "tools" in body:
        said = '"auto" tool choice requires --enable-auto-tool-choice'
        return 400, [json.dumps({"object": "error", "message": said}).encode()], False
    _change(way, body, reply)
    if not body.get("stream") or way == "no-stream":
        return 200, [reply.whole()], False
    events = reply.events()
    finish, usage, done = events[-3:] if reply.finish else (b"", *events[-2:])
    text = _event(_chunk({"content": "And more."}))
    if way == "no-done":
        events = events[:-1]
    elif way == "cut-event":
        events = [*events[:3], events[3][:40]]
    elif way == "no-json":
        events[2] = b"data: {'delta': 1}\n\n"
    elif way == "wrong-index" and reply.calls:
        events[1] = _event(_chunk({"tool_calls": [{"index": 3, "function": {"arguments": "}"}}]}))
    elif way == "error-event":
        events = [*events[:2], _event({"error": {"message": "EngineCore died", "code": 500}}), done]
    elif way == "after-finish":
        events = [*events[:-3], finish, text, usage, done]
    elif way == "two-finishes":
        events = [*events[:-3], finish, _event(_chunk({}, "length")), usage, done]
    elif way == "after-done":
        events = [*events, text]
    elif way == "breaks-off":
        return 200, events[:3], True
    elif way in ("no-index", "other-index"):
        instead = b"" if way == "no-index" else b'"index": 5, '
        events = [event.replace(b'"tool_calls": [{"index": 0, ', b'"tool_calls": [{' + instead) for event in events]
    elif way == "reasoning-content":
        events = [event.replace(b'"reasoning"', b'"reasoning_content"') for event in events]
    return 200, events, False


_WORDS: list[str] = []


def _change(way: str, body: dict[str, Any], reply: Reply) -> None:
    if way in ("parts", "refuses") and not body.get("stream") and not reply.calls:
        reply.content = [{"type": "text", "text": reply.content}] if way == "parts" else ""
        reply.refusal = "I will not say that." if way == "refuses" else None
    elif way == "no-finish":
        reply.finish = None
    elif way in ("no-thoughts", "declines"):
        reply.reasoning = ""
        if reply.calls and way == "declines":
            reply.calls, reply.content, reply.finish = [], "I would rather not.", "stop"
    elif way == "mixed":
        _WORDS.append(reply.content.partition(".")[0])
        reply.content = f"{_WORDS[-2] if len(_WORDS) > 1 else ''} is what I was told."
    elif way == "budget-ignored" and "thinking_token_budget" in body:
        reply.reasoning = "So I think and think. " * 200
    elif way == "undeclared" and not reply.calls:
        reply.calls = [{"id": "1", "type": "function", "function": {"name": "rm", "arguments": "{}"}}]
    if not reply.calls or way == "undeclared":
        return
    call = reply.calls[0]
    said = call["function"]
    value = json.loads(said["arguments"])["value"]
    if way in ("no-calls", "no-required-call"):
        reply.calls, reply.finish = [], "tool_calls" if way == "no-calls" else "stop"
        reply.content = "" if way == "no-calls" else "Seven."
    elif way == "wrong-finish":
        reply.finish = "stop"
    elif way == "no-id":
        call["id"] = ""
    elif way == "no-name":
        said["name"] = ""
    elif way == "same-id":
        reply.calls.append(json.loads(json.dumps(call)))
    elif way == "double-brace":
        said["arguments"] += "}"
    elif way == "truncated":
        said["arguments"] = said["arguments"][:-1]
    elif way == "as-strings":
        said["arguments"] = json.dumps({"value": json.dumps(value)})
    elif way == "as-objects":
        said["arguments"] = json.loads(said["arguments"])
    elif way == "lost":
        said["arguments"] = "{}"
    elif way == "tag-in-value" and isinstance(value, str):
        said["arguments"] = json.dumps({"value": value + "\n</parameter>"})


async def app(scope: dict[str, Any], receive: Any, send: Any) -> None:
    if scope["type"] != "http":
        return
    _, way, path = scope["path"].split("/", 2)
    key = dict(scope["headers"]).get(b"authorization", b"")
    if (way, key) not in (("key", b"Bearer right"), ("basic", b"Basic bWU6c2VjcmV0")) and way in ("key", "basic"):
        await _send(send, 401, JSON, [b'{"error": "Unauthorized"}'])
        return
    if path == "v1/models":
        owner = "vllm" if way.startswith("budget") else "somebody"
        models = {"object": "list", "data": [{"id": "made-up", "owned_by": owner}, {"id": "other", "owned_by": owner}]}
        await _send(send, 404 if way == "no-list" else 200, JSON, [json.dumps(models).encode()])
        return
    if path != "v1/chat/completions":
        await _send(send, 404, JSON, [b'{"detail": "Not Found"}'])
        return
    body = json.loads(await _body(receive))
    if body["model"] not in ("made-up", "other"):
        message = f"The model `{body['model']}` does not exist."
        await _send(send, 404, JSON, [json.dumps({"error": {"message": message}}).encode()])
        return
    if way == "old-names" and ("max_tokens" in body or "stream_options" in body):
        message = "Unsupported parameter: stream_options"
        if "max_tokens" in body:
            message = "Unsupported parameter: max_tokens; use max_completion_tokens"
        await _send(send, 400, JSON, [json.dumps({"error": {"message": message}}).encode()])
        return
    if body["messages"][-1]["content"] == "Say hello." and way != "never-well":
        way = "healthy"
    if way in ("hangs", "never-well"):
        await _gone(receive)
        return
    status, pieces, broken = bend(way, body, Reply(body))
    headers = SSE if status == 200 and body.get("stream") and way not in ("no-stream", "page") else JSON
    await send({"type": "http.response.start", "status": status, "headers": headers})
    for piece in pieces:
        await send({"type": "http.response.body", "body": piece, "more_body": True})
        if way == "hangs-in-stream":
            await _gone(receive)
            return
    if broken:
        # An application that ends like this leaves its server no other way than to close the connection.
        return
    await send({"type": "http.response.body", "body": b"", "more_body": False})


@contextlib.contextmanager
def served() -> Iterator[str]:
    """The server in a thread; its address."""
    listening = socket.socket()
    listening.bind(("127.0.0.1", 0))
    listening.listen(256)
    config = uvicorn.Config(app, log_config=None, access_log=False, lifespan="off", timeout_graceful_shutdown=1)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
    thread.start()
    end = time.monotonic() + 20
    while not server.started and time.monotonic() < end:
        time.sleep(0.02)
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(10)
        listening.close()


async def _gone(receive: Any) -> None:
    """Until the client leaves."""
    with contextlib.suppress(asyncio.TimeoutError):
        async def left() -> None:
            while (await receive())["type"] != "http.disconnect":
                pass

        await asyncio.wait_for(left(), HANG)


async def _body(receive: Any) -> bytes:
    body = b""
    while True:
        message = await receive()
        body += message.get("body", b"")
        if not message.get("more_body"):
            return body


async def _send(send: Any, status: int, headers: Any, pieces: list[bytes]) -> None:
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": b"".join(pieces), "more_body": False})


def _chunk(delta: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
    return HEAD | {"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}


def _event(data: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps(data).encode() + b"\n\n"
