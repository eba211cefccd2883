"""What the model's own chat template writes, and which of the engine's tool parsers read a call that is written so."""

from __future__ import annotations

import json
from typing import Any

from engine_overlay.doctor.inside import parsers

NAME, ARGUMENTS = "get_weather", {"city": "Paris", "days": 3}
"""The call that is rendered and read back."""

_QUESTION = "What is the weather like?"

TOOL = {
    "type": "function",
    "function": {
        "name": NAME,
        "description": "Weather of a city.",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
            "required": ["city"],
        },
    },
}


def request(asked: Any, *, tools: bool) -> Any:
    """A chat request as a client sends it."""
    protocol = asked.engine.module("entrypoints.openai.chat_completion.protocol")
    body: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": _QUESTION}]}
    if tools:
        body |= {"tools": [TOOL], "tool_choice": "auto"}
    return protocol.ChatCompletionRequest(**body)


def rendered(asked: Any) -> dict[str, Any]:
    """``{"prompt", "call", "tools": bool, "error"}``: the end of a prompt, and how the template writes a call.

    ``call`` is what a model would have answered with, without the tokens that end a turn; None when the template has
    no calls or refuses them. ``tools`` says whether the prompt shows the tools of a request at all.
    """
    question = {"role": "user", "content": _QUESTION}
    prompt = _render(asked, [question], generate=True)
    asked.turns = {"prompt": prompt}
    found: dict[str, Any] = {"prompt": prompt[-200:], "call": None, "tools": False, "error": None}
    try:
        found["tools"] = NAME in _render(asked, [question], generate=True, tools=[TOOL])
    except Exception as error:
        found["error"] = _line(error)
    for arguments in (ARGUMENTS, json.dumps(ARGUMENTS)):
        # Templates differ in whether they take the arguments as an object or as its JSON.
        call = {"type": "function", "id": "call00001", "function": {"name": NAME, "arguments": arguments}}
        turn = {"role": "assistant", "content": "", "tool_calls": [call]}
        try:
            whole = _render(asked, [question, turn], generate=False, tools=[TOOL])
        except Exception as error:
            found["error"] = _line(error)
            continue
        if written := _answer(asked, whole):
            asked.turns["call"] = found["call"] = written
            found["error"] = None
            break
    return found


def _render(asked: Any, messages: list[dict[str, Any]], *, generate: bool, tools: Any = None) -> str:
    given: dict[str, Any] = {"tokenize": False, "add_generation_prompt": generate}
    if asked.told.get("chat_template"):
        given["chat_template"] = asked.told["chat_template"]
    return str(asked.tokenizer.apply_chat_template(messages, tools=tools, **given))


def _answer(asked: Any, whole: str) -> str | None:
    """What follows the user's words in a rendered conversation, from the first character of the call on."""
    after = whole.rpartition(_QUESTION)[2]
    if NAME not in after or "Paris" not in after:
        return None
    for end in ("</think>", "[/THINK]", "</seed:think>", "<channel|>"):
        # An empty block of reasoning before the call belongs to no call.
        head, found, tail = after.partition(end)
        if found and NAME not in head:
            after = tail
    ends = [*getattr(asked.tokenizer, "all_special_tokens", ()), "<|im_end|>", "<|eot_id|>", "<|eom_id|>", "<turn|>"]
    while True:
        cut = after.rstrip()
        end = next((e for e in ends if e and cut.endswith(e) and not _closes(e)), None)
        if end is None:
            break
        after = cut[: -len(end)]
    return _without_header(asked, after).strip()


def _closes(token: str) -> bool:
    """Whether a special token at the end belongs to the call: its own closer."""
    return any(word in token.lower() for word in ("call", "tool", "function", "action", "/"))


def _without_header(asked: Any, text: str) -> str:
    """The turn without what the prompt writes itself: the part of it that follows the question."""
    header = asked.turns["prompt"].rpartition(_QUESTION)[2]
    for part in (header, header.partition("<think>")[0]):
        if part.strip() and text.startswith(part):
            return text[len(part) :]
    return text


def _line(error: Exception) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())[:200]


def readers(asked: Any) -> dict[str, str]:
    """Tool parser -> "reads" or what came instead, for a call as the template writes it; {} when it writes none."""
    text = (asked.turns or {}).get("call")
    if not text:
        return {}
    found = {}
    for name in parsers.names(asked)["tools"]:
        try:
            parser = parsers.parser_of(asked, "tools", name)
            answer = parser.extract_tool_calls(text, request(asked, tools=True))
            found[name] = _judged(answer)
        except Exception as error:
            found[name] = _line(error)
    return found


def _judged(answer: Any) -> str:
    calls = [(call.function.name, call.function.arguments) for call in answer.tool_calls or ()]
    if len(calls) != 1:
        return f"{len(calls)} calls" if calls else "no call"
    name, arguments = calls[0]
    try:
        found = json.loads(arguments)
        # A number that comes as text is another matter than a call that is not seen.
        same = {key: str(value) for key, value in found.items()} == {k: str(v) for k, v in ARGUMENTS.items()}
    except (ValueError, AttributeError):
        same = False
    if name == NAME and same:
        return "reads"
    return f"{name}({arguments})"[:120]
