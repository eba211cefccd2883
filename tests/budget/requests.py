"""What is asked of a server on the deep core, and what each answer must be."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from engine_overlay.verify.releases import Release
from tests.serving import requests as serving
from tests.serving.tokens import spelled, whole

BUDGET = 40
"""Tokens of thinking that requests with a budget are given; a token is a byte."""

THOUGHT = "I should check."
LONG = "I should check this and that and much more before I say anything."
PROSE = "Sure, it is nice in Paris, and it will stay so for some days."
VALUE = {"city": "Paris", "days": 3}
SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
    "required": ["city", "days"],
    "additionalProperties": False,
}
MENTION = "The tag `</think>` ends it."
_NATIVE = (
    "\n<tool_call>\n<function=get_weather>\n<parameter=city>\nParis\n</parameter>\n<parameter=days>\n3\n</parameter>\n"
    "</function>\n</tool_call>"
)
_HERMES = f'\n<tool_call>\n{{"name": "get_weather", "arguments": {json.dumps(VALUE)}}}\n</tool_call>'
CALLED = [["get_weather", VALUE]]
_TOOL = {"name": "get_weather", "description": "The weather of a city", "parameters": SCHEMA}


@dataclass(frozen=True)
class Request:
    """One request. ``fault`` says that a stock server gets it wrong. ``forced``: how many tokens the budget puts into
    the script, or None where the script is not followed to its end.
    """

    name: str
    stream: bool
    script: tuple[int, ...]
    more: dict[str, Any]
    expect: dict[str, Any]
    fault: bool
    forced: int | None = None
    api: str = "chat"

    def body(self, engine: str) -> dict[str, Any]:
        fallbacks = [
            spelled(json.dumps(VALUE)),
            spelled(json.dumps([{"name": "get_weather", "parameters": VALUE}])),
            *(whole(call) for call in (_NATIVE, _NATIVE.lstrip(), _HERMES, _HERMES.lstrip())),
        ]
        extra = {"script": json.dumps([self.script]), "fallbacks": json.dumps(fallbacks)}
        messages = [{"role": "user", "content": "What is get_weather for?"}]
        sampling = {"max_tokens": 400, "temperature": 0}
        return {
            f"{engine}_xargs": extra, "model": serving.MODEL, "stream": self.stream, "messages": messages,
        } | sampling | self.more  # fmt: skip


def tool_parser(release: Release) -> str:
    """The tool parser of the release's server: one whose calls the release itself constrains, if asked to."""
    return "hermes" if release.label == "vllm-0.28.0" else "qwen3_coder"


def all_requests(release: Release) -> Iterator[Request]:
    """What is asked of this release."""
    for request in _asked(release):
        # Without the parser engine a whole answer is cut at the first marker in its text, mentioned or not.
        if release.has_parser_engine or request.stream or "mention" not in request.name:
            yield request


def _asked(release: Release) -> Iterator[Request]:
    yield from _constrained()
    if not (release.engine == "vllm" and release.label.startswith("vllm-0.18")):
        yield from _budgets(release)


def _constrained() -> Iterator[Request]:
    schema = {"name": "weather", "schema": SCHEMA}
    tools = {"tools": [{"type": "function", "function": _TOOL}]}
    named = {"type": "function", "function": {"name": "get_weather"}}
    kinds = {
        "json": {"response_format": {"type": "json_schema", "json_schema": schema}},
        "required": tools | {"tool_choice": "required"},
        "named": tools | {"tool_choice": named},
    }
    for kind, more in kinds.items():
        answer = {"content": json.dumps(VALUE), "calls": []} if kind == "json" else {"content": "", "calls": CALLED}
        for form, text, fault in (
            ("spelled", spelled(f"{THOUGHT}</think>{PROSE}"), True),
            ("spelled newline", spelled(f"{THOUGHT}</think>\n\n{PROSE}"), True),
            ("whole", whole(f"{THOUGHT}</think>{PROSE}"), False),
        ):
            yield from _both(f"{kind} {form}", text, more, answer | {"reasoning": THOUGHT}, fault)
        mention = spelled(MENTION) + whole(f"</think>{PROSE}")
        yield from _both(f"{kind} mention", mention, more, answer | {"reasoning": MENTION}, False)
    text = spelled(f"{THOUGHT}</think>{PROSE}")
    none = {"reasoning": THOUGHT, "content": PROSE, "calls": []}
    yield from _both("free spelled", text, {}, none, False)


def _budgets(release: Release) -> Iterator[Request]:
    tools = {"tools": [{"type": "function", "function": _TOOL}], "tool_choice": "auto"}
    more = tools | {"thinking_token_budget": BUDGET}
    said = {"reasoning": THOUGHT, "content": PROSE, "calls": []}
    call = {"reasoning": THOUGHT, "content": "", "calls": CALLED}
    yield from _both("budget natural", whole(f"{THOUGHT}</think>{PROSE}"), more, said, False, 0)
    yield from _both("budget spelled", spelled(f"{THOUGHT}</think>{PROSE}"), more, said, True, 0)
    native = _HERMES if tool_parser(release) == "hermes" else _NATIVE
    yield from _both("budget implicit", whole(f"{THOUGHT}{native}"), more, call, True, 0)
    if release.has_parser_engine and native is _NATIVE:
        yield from _both("budget implicit spelled", spelled(f"{THOUGHT}{_NATIVE}"), more, call, True, 0)
        yield from _both("budget spelled call", spelled(f"{THOUGHT}</think>{_NATIVE}"), more, call, True, 0)
    # The newline behind <think> in the prompt is a token of thinking, but for the processor of old releases.
    free = BUDGET if release.label.startswith(("vllm-0.19", "vllm-0.20", "aphrodite_engine-0.20")) else BUDGET - 1
    cut = {"reasoning": LONG[:free], "content": LONG[free:], "calls": []}
    yield from _both("budget none", spelled(LONG), more, cut, False, 1)
    text = f"{MENTION} {LONG}"
    cut = {"reasoning": text[:free], "content": text[free:], "calls": []}
    yield from _both("budget mention", spelled(text), more, cut, False, 1)
    schema = {"response_format": {"type": "json_schema", "json_schema": {"name": "weather", "schema": SCHEMA}}}
    answer = {"reasoning": THOUGHT, "content": json.dumps(VALUE), "calls": []}
    text = spelled(f"{THOUGHT}</think>{PROSE}")
    yield from _both("budget json spelled", text, schema | {"thinking_token_budget": BUDGET}, answer, True)


def _both(
    name: str, ids: list[int], more: dict[str, Any], expect: dict[str, Any], fault: bool, forced: int | None = None
) -> Iterator[Request]:
    for stream in (True, False):
        way = "stream" if stream else "full"
        yield Request(f"{name} {way}", stream, tuple(ids), more, expect, fault, forced)


def wrong(request: Request, status: int, body: str) -> dict[str, Any]:
    """What of an answer is not as it must be; empty when it is right."""
    if status != 200:
        return {"status": status, "body": body[:300]}
    try:
        seen = serving.answer(request, body)  # type: ignore[arg-type]
    except ValueError as error:
        return {"error": str(error)[:300]}
    bad = {key: seen[key] for key, value in request.expect.items() if _tidy(seen[key]) != _tidy(value)}
    if not request.stream and request.forced is not None:
        # A second end of reasoning is dropped by some parsers, and shows in the count alone.
        said = json.loads(body)["usage"]["completion_tokens"]
        if said != len(request.script) + 1 + request.forced:
            bad["tokens"] = said
    return bad


def _tidy(value: Any) -> Any:
    return value.strip() if isinstance(value, str) else value
