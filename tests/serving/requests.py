"""The requests that are sent to every server, what each must be answered with, and how answers are read."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tests.serving.tokens import spelled, whole

MODEL = "tiny"

_THOUGHT = "I should check."
_CALL = (
    "\n\n<tool_call>\n<function=get_weather>\n<parameter=city>\nParis\n</parameter>\n<parameter=days>\n3\n</parameter>\n"
    "<parameter=raw>\ntrue\n</parameter>\n</function>\n</tool_call>"
)
_TOOL = {
    "name": "get_weather",
    "description": "The weather of a city",
    "parameters": {
        "type": "object",
        "properties": {"city": {"type": "string"}, "days": {"type": "integer"}, "raw": {"type": "boolean"}},
    },
}
_MENTION = "The tag `</think>` ends it."
_ADVICE = "Write `<tool_call>` to call."


@dataclass(frozen=True)
class Request:
    """One request. ``form`` is ``whole`` (markers are tokens), ``spelled``, or ``mention`` (a marker only
    quoted).
    """

    name: str
    api: str
    form: str
    stream: bool
    script: tuple[tuple[int, ...], ...]
    expect: dict[str, Any]

    @property
    def path(self) -> str:
        return "/v1/chat/completions" if self.api == "chat" else "/v1/responses"

    def body(self, engine: str) -> dict[str, Any]:
        extra = {
            f"{engine}_xargs": {"script": json.dumps(self.script)},
            "model": MODEL,
            "stream": self.stream,
        }
        if self.api == "responses":
            # The Responses API has no tool choice "none" of its own here; the tool is declared and left to
            # the model.
            tools = [{"type": "function", **_TOOL}]
            return extra | {"input": "hi", "max_output_tokens": 1000, "store": False, "tools": tools}
        messages = [{"role": "user", "content": "hi"}]
        tools = [{"type": "function", "function": _TOOL}]
        return extra | {"messages": messages, "max_tokens": 1000, "tools": tools, "tool_choice": "auto"}


def all_requests() -> Iterator[Request]:
    called = [["get_weather", {"city": "Paris", "days": 3, "raw": True}]]
    answers = {
        "call": (f"{_THOUGHT}</think>{_CALL}", {"reasoning": _THOUGHT, "content": "", "calls": called}),
        "text": (
            f"{_THOUGHT}</think>\n\nhello world",
            {"reasoning": _THOUGHT, "content": "hello world", "calls": []},
        ),
    }
    for answer, (text, expect) in answers.items():
        for form, tokens in (("whole", whole), ("spelled", spelled)):
            yield from _ways(f"{answer} {form}", form, tokens(text), expect)
    quoted = spelled(_MENTION) + whole("</think>\n\n") + spelled(_ADVICE)
    yield from _ways("mention", "mention", quoted, {"reasoning": _MENTION, "content": _ADVICE, "calls": []})


def _ways(name: str, form: str, ids: list[int], expect: dict[str, Any]) -> Iterator[Request]:
    reason = {"finish_reason": "tool_calls" if expect["calls"] else "stop"}
    for step in (1, 5):
        script = tuple(tuple(ids[start : start + step]) for start in range(0, len(ids), step))
        yield Request(f"chat stream {name} by {step}", "chat", form, True, script, expect | reason)
    yield Request(f"chat full {name}", "chat", form, False, (tuple(ids),), expect | reason)
    one_by_one = tuple((token,) for token in ids)
    yield Request(f"responses stream {name}", "responses", form, True, one_by_one, expect)
    yield Request(f"responses full {name}", "responses", form, False, (tuple(ids),), expect)


# Ids and times that differ from one request to the next on the stock engine too.
_IDS = re.compile(r'"(id|call_id|item_id|request_id|response_id|tool_call_id)":\s*"[^"]*"')
_TIMES = re.compile(r'"(created|created_at|completed_at)":\s*[0-9.]+')


def comparable(raw: str) -> str:
    """The body of a response without its ids and times."""
    return _TIMES.sub(r'"\1":0', _IDS.sub(r'"\1":""', raw))


def answer(request: Request, raw: str) -> dict[str, Any]:
    """What a client puts together from the response. Raises ValueError for an error or an unfinished
    stream.
    """
    if request.api == "chat":
        return _chat_stream(raw) if request.stream else _chat_full(json.loads(raw))
    if not request.stream:
        return _response(json.loads(raw))
    done = [event for event in _events(raw) if event.get("type") == "response.completed"]
    if not done:
        raise ValueError(f"the stream has no response.completed: {raw[-300:]}")
    return _response(done[-1]["response"]) | {"streamed": _streamed(raw)}


def _events(raw: str) -> Iterator[dict[str, Any]]:
    for line in raw.splitlines():
        if line.startswith("data: {"):
            event = json.loads(line.removeprefix("data: "))
            if "error" in event and event["error"]:
                raise ValueError(json.dumps(event["error"]))
            yield event


def _chat_stream(raw: str) -> dict[str, Any]:
    seen: dict[str, Any] = {"reasoning": "", "content": "", "calls": [], "finish_reason": None}
    calls: dict[int, list[str]] = {}
    for chunk in _events(raw):
        for choice in chunk["choices"]:
            delta = choice["delta"]
            seen["reasoning"] += delta.get("reasoning") or ""
            seen["content"] += delta.get("content") or ""
            seen["finish_reason"] = choice.get("finish_reason") or seen["finish_reason"]
            for call in delta.get("tool_calls") or []:
                made, function = calls.setdefault(call["index"], ["", ""]), call.get("function") or {}
                made[0] += function.get("name") or ""
                made[1] += function.get("arguments") or ""
    return _tidy(seen | {"calls": [calls[index] for index in sorted(calls)]})


def _chat_full(data: dict[str, Any]) -> dict[str, Any]:
    choice = data["choices"][0]
    message = choice["message"]
    calls = [[c["function"]["name"], c["function"]["arguments"]] for c in message.get("tool_calls") or []]
    return _tidy(
        {
            "reasoning": message.get("reasoning") or "",
            "content": message.get("content") or "",
            "calls": calls,
        }
        | {"finish_reason": choice["finish_reason"]}
    )


def _response(data: dict[str, Any]) -> dict[str, Any]:
    seen: dict[str, Any] = {"reasoning": "", "content": "", "calls": []}
    for item in data["output"]:
        texts = "".join(part.get("text") or "" for part in item.get("content") or [])
        if item["type"] == "reasoning":
            seen["reasoning"] += texts
        elif item["type"] == "message":
            seen["content"] += texts
        elif item["type"] == "function_call":
            seen["calls"].append([item["name"], item["arguments"]])
    return _tidy(seen)


def _streamed(raw: str) -> dict[str, Any]:
    """What the deltas of a Responses stream add up to, which clients show before the final object comes."""
    kinds = {
        "response.reasoning_text.delta": "reasoning",
        "response.output_text.delta": "content",
        "response.function_call_arguments.delta": "arguments",
    }
    seen = dict.fromkeys(kinds.values(), "")
    for event in _events(raw):
        field = kinds.get(event.get("type", ""))
        if field:
            seen[field] += event["delta"]
    return {field: text.strip() for field, text in seen.items()}


def _tidy(seen: dict[str, Any]) -> dict[str, Any]:
    calls = []
    for name, arguments in seen["calls"]:
        try:
            calls.append([name, json.loads(arguments)])
        except ValueError:
            calls.append([name, f"not JSON: {arguments}"])
    return seen | {
        "reasoning": seen["reasoning"].strip(),
        "content": seen["content"].strip(),
        "calls": calls,
    }


def wrong(request: Request, seen: dict[str, Any]) -> dict[str, Any]:
    """The fields that differ from what is expected, with what came instead."""
    bad = {field: seen[field] for field, value in request.expect.items() if seen[field] != value}
    streamed = seen.get("streamed")
    if streamed is not None:
        arguments = "".join(streamed["arguments"].split())
        told = (
            [[request.expect["calls"][0][0], json.loads(arguments or "null")]]
            if request.expect["calls"]
            else []
        )
        if (
            streamed["reasoning"] != request.expect["reasoning"]
            or streamed["content"] != request.expect["content"]
        ):
            bad["streamed"] = streamed
        elif told != request.expect["calls"]:
            bad["streamed"] = streamed
    return bad
