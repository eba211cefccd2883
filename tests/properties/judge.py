"""When the two answers to one dialogue are right: each by what was meant, and both the same."""

from __future__ import annotations

from typing import Any

from engine_overlay.verify import cases as public
from engine_overlay.verify.cases import Answer, Case


def verdict(case: Case, both: dict[str, Answer]) -> dict[str, Any] | None:
    """What is wrong, or None: {"way": "stream", "full" or "stream and full", "wrong": {field: what came}}."""
    for way, answer in both.items():
        difference = undeclared(case, answer) or public.wrong(case, answer)
        if difference:
            return {"way": way, "wrong": difference}
    difference = apart(both["stream"], both["full"])
    return {"way": "stream and full", "wrong": difference} if difference else None


def undeclared(case: Case, answer: Answer) -> dict[str, Any]:
    """The calls of tools that the request does not declare: a client would run something nobody offered."""
    offered = {tool["name"] for tool in case["tools"] or ()}
    names = [call[0] for call in (answer.calls or {}).values() if call[0] not in offered]
    return {"undeclared": names} if names else {}


def apart(stream: Answer, full: Answer) -> dict[str, Any]:
    """The fields in which a stream and one message differ, as (streamed, full).

    Arguments are compared byte for byte; white space at the edges of texts does not count.
    """
    pairs = {field: tuple(read(answer) for answer in (stream, full)) for field, read in _FIELDS.items()}
    return {field: list(pair) for field, pair in pairs.items() if pair[0] != pair[1]}


_FIELDS = {
    "reasoning": lambda answer: answer.reasoning.strip(),
    "content": lambda answer: answer.content.strip(),
    "tool_calls": lambda answer: [call for _, call in sorted((answer.calls or {}).items())],
    "finish_reason": lambda answer: answer.finish_reason,
}
