"""What a request says that the filter has to know, and the thinking budget put into it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

CHAT, COMPLETIONS, RESPONSES = "/v1/chat/completions", "/v1/completions", "/v1/responses"
ENDPOINTS = (CHAT, COMPLETIONS, RESPONSES)

BUDGET = "thinking_token_budget"

UNREADABLE = (ValueError, RecursionError)
"""What reading JSON raises: it is none, or it is nested without end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """``choices``: how many answers there will be. ``tools``: it may declare some. ``start``: an answer begins at its
    beginning, and does not continue a text of the client. ``edges``: the client leaves the format to the server.
    """

    choices: int = 1
    tools: bool = False
    start: bool = True
    edges: bool = True


def endpoint(path: str) -> str | None:
    """Which of the endpoints a path names, with or without a folder before it."""
    return next((known for known in ENDPOINTS if path.endswith(known)), None)


def read(kind: str, body: bytes) -> Asked:
    """What the request says. One that cannot be read is the server's to refuse, and asks for nothing here."""
    tools = b'"tools"' in body
    # Large prompts are not parsed for a word that is not in them.
    if kind != COMPLETIONS and not any(key in body for key in (b'"n"', b'"echo"', b'"continue_final_message"')):
        return Asked(tools=tools)
    try:
        request = json.loads(body)
    except UNREADABLE:
        return Asked(tools=tools)
    if not isinstance(request, dict):
        return Asked(tools=tools)
    wanted = request.get("n")
    choices = wanted if isinstance(wanted, int) and wanted > 0 else 1
    if kind == COMPLETIONS:
        prompt = request.get("prompt")
        raw = bool(request.get("echo") or request.get("suffix")) or _is_raw(prompt)
        return Asked(choices=choices * (len(prompt) if _is_many(prompt) else 1), edges=not raw)
    started = bool(request.get("echo") or request.get("continue_final_message"))
    return Asked(choices=choices, tools=tools, start=not started)


def with_budget(body: bytes, tokens: int) -> bytes:
    """The request with a budget, when it is a JSON object that does not name one; every other byte stays."""
    text = body.lstrip()
    if not text.startswith(b"{"):
        return body
    try:
        if BUDGET.encode() in body and BUDGET in json.loads(body):
            return body
    except UNREADABLE:
        return body
    rest = text[1:].lstrip()
    comma = b"" if rest.startswith(b"}") else b","
    return b'{"%s":%d%s' % (BUDGET.encode(), tokens, comma) + text[1:]


def _is_many(prompt: Any) -> bool:
    return isinstance(prompt, list) and bool(prompt) and not isinstance(prompt[0], int)


def _is_raw(prompt: Any) -> bool:
    """Whether a prompt is already in a model's own format, so that the client also reads the answer in it."""
    # A text, or a list of texts; token ids, alone or in lists, are always in the model's format.
    texts = prompt if _is_many(prompt) else [prompt]
    return any(not isinstance(t, str) or any(mark in t for mark in ("<|", "think", "tool_call")) for t in texts)
