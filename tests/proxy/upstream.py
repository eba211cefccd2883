"""A server to stand before: answers with the bytes that it is asked for, and tells what became of each request.

    python -m tests.proxy.upstream --port 0

A POST anywhere may carry ``{"reply": {...}}``: ``chunks`` (a list of texts, sent one by one), ``pause`` (seconds from
one to the next), ``headers``, ``status``, ``repeat`` (the chunks again and again), ``die`` (the process ends after
them). ``base64: true`` says that the chunks are so. ``GET /seen`` tells the requests so far: method, target, headers,
body, how many chunks were sent, and how it ended. It prints its port when it listens.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import itertools
import json
import os
import socket
from typing import Any

import uvicorn

SEEN: list[dict[str, Any]] = []


async def app(scope: dict[str, Any], receive: Any, send: Any) -> None:
    if scope["type"] != "http":
        return
    target = scope["raw_path"].decode() + ("?" + scope["query_string"].decode() if scope["query_string"] else "")
    if target == "/seen":
        await _answer(send, 200, [("content-type", "application/json")], [json.dumps(SEEN).encode()])
        return
    body = b""
    while True:
        message = await receive()
        body += message.get("body", b"")
        if not message.get("more_body"):
            break
    headers = [[name.decode(), value.decode()] for name, value in scope["headers"]]
    note = {"method": scope["method"], "target": target, "headers": headers, "sent": 0, "end": "running"}
    SEEN.append(note)
    note["body"] = body.decode("utf-8", "replace")
    try:
        request = json.loads(body)
    except ValueError:
        request = None
    reply = request.get("reply", {}) if isinstance(request, dict) else {}
    chunks = [base64.b64decode(c) if reply.get("base64") else c.encode() for c in reply.get("chunks", ["ok"])]
    work = asyncio.ensure_future(_reply(send, reply, chunks, note))
    gone = asyncio.ensure_future(_gone(receive))
    await asyncio.wait((work, gone), return_when=asyncio.FIRST_COMPLETED)
    if not work.done():
        note["end"] = "client left"
    for task in (work, gone):
        task.cancel()
    await asyncio.gather(work, gone, return_exceptions=True)


async def _reply(send: Any, reply: dict[str, Any], chunks: list[bytes], note: dict[str, Any]) -> None:
    headers = reply.get("headers") or [["content-type", "text/event-stream; charset=utf-8"]]
    await send({"type": "http.response.start", "status": reply.get("status", 200), "headers": _raw(headers)})
    start = asyncio.get_running_loop().time()
    for number, chunk in enumerate(itertools.cycle(chunks) if reply.get("repeat") else chunks):
        if number and reply.get("pause"):
            # As a model does, which does not wait for the network.
            due = start + number * reply["pause"]
            await asyncio.sleep(max(0.0, due - asyncio.get_running_loop().time()))
        await send({"type": "http.response.body", "body": chunk, "more_body": True})
        note["sent"] += 1
        if reply.get("repeat"):
            # A real server waits for its model; without that a loop would let no other request in.
            await asyncio.sleep(0)
    if reply.get("die"):
        await asyncio.sleep(0.2)
        os._exit(9)
    await send({"type": "http.response.body", "body": b"", "more_body": False})
    note["end"] = "finished"


async def _answer(send: Any, status: int, headers: list[Any], chunks: list[bytes]) -> None:
    await send({"type": "http.response.start", "status": status, "headers": _raw(headers)})
    await send({"type": "http.response.body", "body": b"".join(chunks), "more_body": False})


async def _gone(receive: Any) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _raw(headers: list[Any]) -> list[tuple[bytes, bytes]]:
    return [(name.encode(), value.encode()) for name, value in headers]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, default=0)
    options = parser.parse_args()
    listening = socket.socket()
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listening.bind(("127.0.0.1", options.port))
    listening.listen(2048)
    print(listening.getsockname()[1], flush=True)
    uvicorn.Server(uvicorn.Config(app, log_config=None, access_log=False, lifespan="off")).run(sockets=[listening])


if __name__ == "__main__":
    main()
