"""When the two answers to one dialogue are right: each by what was meant, and both the same."""

from __future__ import annotations

import json
from typing import Any

from engine_overlay.verify import cases as public
from engine_overlay.verify.cases import Answer, Case


def verdict(case: Case, both: dict[str, Answer]) -> dict[str, Any] | None:
    """What is wrong, or None: {"way": "stream", "full" or "stream and full", "wrong": {field: what came}}."""
    judge = beyond if case.get("cut") else _wrong
    for way, answer in both.items():
        difference = undeclared(case, answer) or judge(case, answer)
        if case.get("stream only") and way == "full":
            difference.pop("content", None)
        if difference:
            return {"way": way, "wrong": difference}
    difference = apart(both["stream"], both["full"])
    if case.get("stream only") or case.get("cut") and both["stream"].calls:
        # Behind a call: also the beginning of the next one, where that is cut off.
        difference.pop("content", None)
    if case.get("cut"):
        # Some formats strip the white space that a held piece of text turns out to follow.
        difference = {field: pair for field, pair in difference.items() if _packed(pair[0]) != _packed(pair[1])}
        if _json_args(case):
            # The engine closes the JSON of a whole answer, and passes that of a stream on as it comes.
            difference.pop("tool_calls", None)
    return {"way": "stream and full", "wrong": difference} if difference else None


def _wrong(case: Case, answer: Answer) -> dict[str, Any]:
    difference = public.wrong(case, answer)
    if case.get("loose") and "content" in difference:
        said, meant = (text.split() for text in (answer.content, case["expect"]["content"]))
        if said == meant:
            del difference["content"]
    return difference


def beyond(case: Case, answer: Answer) -> dict[str, Any]:
    """What an answer that was cut off has that the whole one does not: fields with what came, empty when right.

    A marker that was cut off itself may show as the text that it was so far, and so may the head of a call.
    """
    expect, said = case["expect"], public.full_text(case).rstrip("\ufffd")
    wrong: dict[str, Any] = {}
    said = _packed(said)
    reasoning, content = (_packed(text).rstrip("\ufffd") for text in (answer.reasoning, answer.content))
    meant, prose = (_packed(expect[field]) for field in ("reasoning", "content"))
    if not meant.startswith(reasoning) and not (reasoning.startswith(meant) and said.startswith(reasoning)):
        wrong["reasoning"] = answer.reasoning
    if not prose.startswith(content):
        rest = content.removeprefix(prose)
        if not content.startswith(prose) or rest not in said:
            wrong["content"] = answer.content
    made = [call for _, call in sorted((answer.calls or {}).items())]
    if len(made) > len(expect["tool_calls"]):
        return wrong | {"tool_calls": made}
    for (name, text), whole in zip(made, expect["tool_calls"], strict=False):
        if name != whole["name"] or not _begins(whole["arguments"], text, json_args=_json_args(case)):
            wrong["tool_calls"] = made
    return wrong


def _json_args(case: Case) -> bool:
    return case["tool_parser"] == "kimi_k2"


def _packed(value: Any) -> Any:
    return "".join(value.split()) if isinstance(value, str) else value


def _begins(whole: dict[str, Any], text: str, *, json_args: bool) -> bool:
    """Whether ``text`` is valid JSON with a beginning of the arguments ``whole``, or as the model wrote it so far.

    A single ``<`` at the end may be text as well as the first character of a closing tag.
    """
    try:
        got = json.loads(text)
    except ValueError:
        # What the model writes is JSON itself, and is passed on as it is.
        return json_args and json.dumps(whole, ensure_ascii=False).startswith(text.rstrip("\ufffd"))
    if not isinstance(got, dict) or list(got) != list(whole)[: len(got)]:
        return False
    values = [(whole[key], value) for key, value in got.items()]
    return all(v == w for w, v in values[:-1]) and all(
        str(w).lower().startswith(str(v).lower().rstrip("\ufffd").removesuffix("<").rstrip()) for w, v in values[-1:]
    )


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
