"""Streams as servers send them, made for tests, and what a client puts together from one."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

from engine_overlay.proxy.choices import ChoicesStream
from engine_overlay.proxy.options import Options
from engine_overlay.proxy.request import CHAT, COMPLETIONS, RESPONSES, Asked
from engine_overlay.proxy.responses import ResponsesStream
from engine_overlay.proxy.stream import Stream

HEAD = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1796024956, "model": "tiny"}
DONE = b"data: [DONE]\n\n"


def event(data: Any, end: bytes = b"\n") -> bytes:
    return b"data: " + json.dumps(data, ensure_ascii=False, separators=(",", ":")).encode() + end * 2


def delta(index: int = 0, finish: str | None = None, **said: Any) -> dict[str, Any]:
    choice = {"index": index, "delta": said, "logprobs": None, "finish_reason": finish}
    return {**HEAD, "choices": [choice]}


def chat(pieces: Iterable[str | dict[str, Any]], finish: str | None = "stop", usage: bool = True) -> list[bytes]:
    """A chat stream: each piece is content, or a delta of its own."""
    events = [event(delta(role="assistant", content=""))]
    events += [event(delta(**(p if isinstance(p, dict) else {"content": p}))) for p in pieces]
    if finish:
        events.append(event(delta(finish=finish)))
    if usage:
        events.append(event({**HEAD, "choices": [], "usage": {"completion_tokens": 7}}))
    return [*events, DONE]


def cut(text: str, places: Sequence[int]) -> list[str]:
    """``text`` cut at these places, each taken modulo its length."""
    at = sorted({p % (len(text) + 1) for p in places} | {0, len(text)})
    return [text[a:b] for a, b in zip(at, at[1:], strict=False)] or [text]


def cut_bytes(data: bytes, places: Sequence[int]) -> list[bytes]:
    at = sorted({p % (len(data) + 1) for p in places} | {0, len(data)})
    return [data[a:b] for a, b in zip(at, at[1:], strict=False)]


def stream(kind: str = CHAT, asked: Asked | None = None, **chosen: Any) -> Stream:
    asked, options = asked or Asked(), Options(**chosen)
    return ResponsesStream(options, asked) if kind == RESPONSES else ChoicesStream(options, asked, kind)


def through(chunks: Iterable[bytes], kind: str = CHAT, asked: Asked | None = None, **chosen: Any) -> bytes:
    """What a client gets of these network chunks."""
    one = stream(kind, asked, **chosen)
    out = []
    for chunk in chunks:
        out.append(one.feed(chunk))
        if one.stopped:
            return b"".join(out)
    return b"".join((*out, one.close()))


def objects(data: bytes) -> list[dict[str, Any]]:
    lines = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
    return [json.loads(line[6:]) for line in lines if line.startswith(b"data: {")]


def content(data: bytes, index: int = 0, kind: str = CHAT) -> str:
    """The content of one choice."""
    said = ""
    for found in objects(data):
        for choice in found.get("choices", ()):
            if choice["index"] == index:
                said += (choice.get("text") if kind == COMPLETIONS else choice["delta"].get("content")) or ""
    return said


def finish(data: bytes, index: int = 0) -> str | None:
    reasons = [
        choice.get("finish_reason")
        for found in objects(data)
        for choice in found.get("choices", ())
        if choice["index"] == index
    ]
    return next((reason for reason in reasons if reason), None)


def responses(pieces: Sequence[str], reasoning: str = "", part_only: bool = False) -> list[bytes]:
    """A Responses stream with one message (after reasoning, if any) in the events of vLLM."""
    events: list[bytes] = []
    output: list[dict[str, Any]] = []
    shell = {"id": "resp_1", "object": "response", "status": "in_progress", "output": []}

    def say(kind: str, **body: Any) -> None:
        data = {**body, "sequence_number": len(events), "type": kind}
        events.append(b"event: " + kind.encode() + b"\n" + event(data))

    say("response.created", response=shell)
    for kind, name, texts in (("reasoning", "reasoning_text", [reasoning]), ("message", "output_text", pieces)):
        if not any(texts) and kind == "reasoning":
            continue
        at, item = len(output), {"id": f"{kind}_1", "type": kind, "content": []}
        place = {"output_index": at, "content_index": 0, "item_id": item["id"]}
        say("response.output_item.added", item=item, output_index=at)
        say("response.content_part.added", part={"type": name, "text": ""}, **place)
        for piece in texts:
            say(f"response.{name}.delta", delta=piece, **place)
        if part_only and kind == "message":
            return events
        whole = "".join(texts)
        say(f"response.{name}.done", text=whole, **place)
        say("response.content_part.done", part={"type": name, "text": whole}, **place)
        item = {**item, "content": [{"type": name, "text": whole}]}
        say("response.output_item.done", item=item, output_index=at)
        output.append(item)
    say("response.completed", response={**shell, "status": "completed", "output": output})
    return events
