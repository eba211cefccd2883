"""Requests by the ``openai`` client, and the same over plain HTTP where every byte counts."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterable, Sequence
from typing import Any

import httpx
from openai import AsyncOpenAI, OpenAI

from .answers import TOOL, Answer
from .server import MODEL, Server

PAUSE = 0.01
"""Seconds a token, where deltas are compared: the engine joins tokens that a busy client has not fetched."""

_VARIES = (
    (re.compile(r'"id": ?"(chatcmpl|chatcmpl-tool|call|cmpl)[-_][^"]*"'), r'"id":"\1"'),
    (re.compile(r'"created": ?\d+'), '"created":0'),
)


def body(ids: Sequence[int], *, pause: float = 0.0, heeds: bool = False, **extra: Any) -> dict[str, Any]:
    """A chat request whose answer is ``ids`` (see scripted_logits). ``extra`` goes into the request as it is."""
    return {
        "model": MODEL,
        "messages": [{"role": "user", "content": "hello"}],
        "tools": [TOOL],
        "temperature": 0,
        "max_tokens": len(ids) + 8,
        "vllm_xargs": {"script": json.dumps(list(ids)), "pause": pause, "heeds": int(heeds)},
        **extra,
    }


def ask(server: Server, ids: Sequence[int], *, stream: bool, **extra: Any) -> Answer:
    """One request by the openai client. Raises openai.APIError when the server refuses it."""
    with OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0, timeout=120) as client:
        result = client.chat.completions.create(**_arguments(body(ids, **extra)), stream=stream)
        return joined(list(result)) if stream else whole(result)


def ask_many(server: Server, scripts: Sequence[Sequence[int]]) -> list[Answer]:
    """All at once, streaming, each on its own connection; answers in the order of ``scripts``."""

    async def one(client: AsyncOpenAI, ids: Sequence[int]) -> Answer:
        stream = await client.chat.completions.create(**_arguments(body(ids)), stream=True)
        return joined([chunk async for chunk in stream])

    async def all_of_them() -> list[Answer]:
        url = f"{server.url}/v1"
        async with AsyncOpenAI(base_url=url, api_key="none", max_retries=0, timeout=300) as client:
            return await asyncio.gather(*(one(client, ids) for ids in scripts))

    return asyncio.run(all_of_them())


def ask_bytes(server: Server, ids: Sequence[int], *, stream: bool, **extra: Any) -> str:
    """The body of the response as it came, but for ids and times."""
    request = body(ids, pause=PAUSE if stream else 0.0, stream=stream, **extra)
    text = httpx.post(f"{server.url}/v1/chat/completions", json=request, timeout=120).text
    for pattern, instead in _VARIES:
        text = pattern.sub(instead, text)
    return text


def deltas(server: Server, ids: Sequence[int], **extra: Any) -> Iterable[dict[str, Any]]:
    """The deltas of a stream as a client sees them, without their empty fields."""
    request = body(ids, pause=PAUSE, stream=True, **extra)
    with httpx.stream("POST", f"{server.url}/v1/chat/completions", json=request, timeout=120) as response:
        for line in response.iter_lines():
            if line.startswith("data: {"):
                for choice in json.loads(line[6:]).get("choices", ()):
                    delta = {k: v for k, v in choice["delta"].items() if v}
                    finish = choice.get("finish_reason")
                    yield delta | ({"finish_reason": finish} if finish else {})


def joined(chunks: Iterable[Any]) -> Answer:
    """What the chunks of one stream amount to."""
    reasoning, content, finish = "", "", None
    calls: dict[int, list[str]] = {}
    for choice in (choice for chunk in chunks for choice in chunk.choices):
        finish = choice.finish_reason or finish
        reasoning += getattr(choice.delta, "reasoning", None) or ""
        content += choice.delta.content or ""
        for part in choice.delta.tool_calls or ():
            name_and_arguments = calls.setdefault(part.index, ["", ""])
            name_and_arguments[0] += part.function.name or ""
            name_and_arguments[1] += part.function.arguments or ""
    return Answer(reasoning, content, tuple((name, text) for name, text in calls.values()), finish)


def whole(completion: Any) -> Answer:
    """What a response that was not streamed amounts to."""
    choice = completion.choices[0]
    calls = tuple((c.function.name, c.function.arguments) for c in choice.message.tool_calls or ())
    reasoning = getattr(choice.message, "reasoning", None) or ""
    return Answer(reasoning, choice.message.content or "", calls, choice.finish_reason)


def _arguments(request: dict[str, Any]) -> dict[str, Any]:
    # What the openai client has no parameter for goes through extra_body.
    own = {"vllm_xargs", "thinking_token_budget", "structured_outputs"}
    return {k: v for k, v in request.items() if k not in own} | {
        "extra_body": {k: v for k, v in request.items() if k in own}
    }
