"""Tags of a model's format, and parts of them, where no client should see them.

At the edges of a text the stray-tag filter's own judgement counts (:mod:`engine_overlay.proxy.edges`). Inside a text a
tag counts unless it stands in code, in quotes, or, where the question is about tags, in a sentence.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from engine_overlay.canary.answer import Answer
from engine_overlay.canary.finding import Found
from engine_overlay.canary.questions import Question
from engine_overlay.proxy.edges import Edges, End
from engine_overlay.proxy.place import Place
from engine_overlay.proxy.tags import Tags
from engine_overlay.text.quoting import is_mentioned, is_quoted

TAGS = Tags(
    thoughts=("think", "mm:think", "seed:think"),
    calls=("tool_call", "minimax:tool_call", "seed:tool_call", "function", "parameter"),
)

_WHOLE = re.compile("|".join(map(re.escape, sorted(TAGS.whole))))
_SPECIAL = re.compile(r"<\|[a-z][a-z0-9_]{2,40}\|>|<\uff5c[^\uff5c<>\n]{2,40}\uff5c>")
"""Special tokens, as in ``<|im_end|>``."""

_THOUGHT = frozenset(tag for tag in TAGS.whole if TAGS.is_thought(tag))
_END = re.compile("|".join(re.escape(tag) for tag in sorted(_THOUGHT) if TAGS.closes(tag)))
_QUOTES = ("`", "'", "\u201c", "\u2018", "\u00ab")
_VALUE_END = re.compile(
    r"</(?:parameter|function|(?:minimax:|seed:)?tool_call|arg_value|arg_key|invoke|think)>\s*\Z"
    r"|\A\s*<(?:parameter=|function=|tool_call>|arg_value>)|<\|tool_call_end\|>\s*\Z"
)


def look(question: Question, answer: Answer) -> Iterator[Found]:
    yield from _content(question, answer)
    if not question.about_tags:
        yield from _reasoning(question, answer)
    yield from _arguments(question, answer)


def head_of_call(names: Mapping[str, Any]) -> re.Pattern[str] | None:
    """What a call to one of these tools begins with, in the formats that have tags; None without a tool."""
    if not names:
        return None
    name = "(?:" + "|".join(map(re.escape, names)) + ")"
    return re.compile(
        rf'<tool_call>\s*\{{\s*"name"\s*:\s*"{name}"|<function={name}>|<invoke name=["\']?{name}["\']?>'
        rf"|<tool_call>\s*{name}\s*(?:\n|<arg_key>|</tool_call>)|<\|tool_call_begin\|>\s*functions\.{name}:"
        rf'|\[TOOL_CALLS\]\s*(?:{name}|\[\s*\{{\s*"name"\s*:\s*"{name}")|<\|python_tag\|>'
    )


def _content(question: Question, answer: Answer) -> Iterator[Found]:
    text = answer.content
    if not text or ("<" not in text and ">" not in text):
        return
    called = _call_as_text(question, answer)
    if called:
        yield called
        return
    if not answer.reasoning.strip() and _opens_with_thought(text):
        # No reasoning parser at work; the runner says so once.
        return
    edges = _edges(text, answer, reasoned=bool(answer.reasoning.strip()))
    for start, end in edges.removed:
        stray = text[start:end]
        if _is_its_own(question, text, start, stray):
            continue
        if stray in _THOUGHT and TAGS.closes(stray) and not answer.reasoning.strip() and text[:start].strip():
            yield _found("thoughts in content", f"all before {stray} is thought", text, "content", start, end)
        else:
            yield _found("tag", f"{stray!r} at the edge of the answer", text, "content", start, end)
        return
    yield from _inside(question, answer)


def _inside(question: Question, answer: Answer) -> Iterator[Found]:
    text, place, at = answer.content, Place(), 0
    opened: set[str] = set()
    for match in sorted((*_WHOLE.finditer(text), *_SPECIAL.finditer(text)), key=lambda m: m.start()):
        start, end, tag = match.start(), match.end(), match.group()
        place.feed(text[at:start])
        at = start
        if f"<{tag[2:]}" in opened or _is_its_own(question, text, start, tag):
            # It closes what the text itself opened, as in an example.
            continue
        if not TAGS.closes(tag):
            opened.add(tag)
        if place.in_code or _in_quotes(text, start) or (question.about_tags and not _plain(place, text, start, end)):
            continue
        if not TAGS.closes(tag) and tag in TAGS.whole and f"</{tag[1:]}" in text[end:]:
            continue
        if tag in _THOUGHT and TAGS.closes(tag):
            yield _found("thoughts in content", f"{tag} in the middle of the answer", text, "content", start, end)
        else:
            yield _found("tag", f"{tag} in the middle of the answer", text, "content", start, end)
        return


def _is_its_own(question: Question, text: str, start: int, tag: str) -> bool:
    """Whether the question names the tag, or it closes an element with attributes that the text opened."""
    return tag in TAGS.whole and (
        tag in question.text or (TAGS.closes(tag) and bool(re.search(rf"<{tag[2:-1]}[ =]", text[:start])))
    )


def _in_quotes(text: str, at: int) -> bool:
    before = text[text.rfind("\n", 0, at) + 1 : at]
    return before.count('"') % 2 == 1 or before.endswith(_QUOTES)


def _plain(place: Place, text: str, start: int, end: int) -> bool:
    """Whether a tag stands by itself in an answer that may talk about tags: on a line of its own at the end of one."""
    return place.is_edge(True) and not is_mentioned(text[:start], text[end:], whole=True, final=True) and (
        start == 0 or text[start - 1] == "\n"
    ) and text[end : end + 1] in ("", "\n")


def _reasoning(question: Question, answer: Answer) -> Iterator[Found]:
    text = answer.reasoning
    if not text.strip():
        return
    empty = not answer.content.strip() and not answer.calls
    head = head_of_call(question.declared)
    if head and empty and answer.finish != "length":
        for match in _outside_code(head, text):
            said = f"a call to {question.calls or 'a declared tool'} in the reasoning, and none in the answer"
            yield _found("call in reasoning", said, text, "reasoning", match.start(), match.end())
            return
    edges = _edges(text, answer, reasoned=True, more=bool(answer.content or answer.calls))
    for start, end in edges.removed[:1]:
        said = f"{text[start:end]!r} at the edge of the reasoning"
        yield _found("tag in reasoning", said, text, "reasoning", start, end)
        return
    if empty:
        # Then all of the answer is in there, which is told elsewhere.
        return
    for match in _outside_code(_END, text):
        said = f"the reasoning goes on behind {match.group()}"
        yield _found("tag in reasoning", said, text, "reasoning", match.start(), match.end())
        return


def _arguments(question: Question, answer: Answer) -> Iterator[Found]:
    for index, call in enumerate(answer.calls):
        for value in _leaves(call.arguments):
            match = _VALUE_END.search(value)
            if match and not any(tag in question.text for tag in match.group().split()):
                start = max(0, call.arguments.find(match.group().strip()))
                name = f"arguments {index}"
                said = f"in a value of {call.name}"
                yield _found("tag in arguments", said, call.arguments, name, start, start + len(match.group()))
                return


def _call_as_text(question: Question, answer: Answer) -> Found | None:
    head = head_of_call(question.declared)
    if not head or answer.calls or question.fields.get("tool_choice") == "none":
        return None
    match = next(_outside_code(head, answer.content), None)
    if not match:
        return None
    said = f"a call to {question.calls or 'a declared tool'} in the content, and none in tool_calls"
    return _found("call as text", said, answer.content, "content", match.start(), match.end())


def _outside_code(pattern: re.Pattern[str], text: str) -> Iterator[re.Match[str]]:
    """Where a pattern stands in a text, and is neither code nor quoted."""
    place, at = Place(), 0
    for match in pattern.finditer(text):
        place.feed(text[at : match.start()])
        at = match.start()
        if not place.in_code and not is_quoted(text[:at], text[match.end() :] or None, whole=True):
            yield match


def _opens_with_thought(text: str) -> bool:
    start = text.lstrip()
    return any(start.startswith(tag) for tag in _THOUGHT if not TAGS.closes(tag))


def _edges(text: str, answer: Answer, *, reasoned: bool, more: bool = False) -> Edges:
    end = End.UNKNOWN
    if more or answer.complete:
        end = End.WHOLE
    elif answer.finish == "length":
        end = End.CUT
    edges = Edges(TAGS, reasoned=reasoned)
    edges.feed(text)
    edges.end(end)
    return edges


def _leaves(arguments: str) -> Iterator[str]:
    try:
        pending = [json.loads(arguments)]
    except (ValueError, RecursionError):
        return
    while pending:
        value = pending.pop()
        if isinstance(value, str):
            yield value
        elif isinstance(value, (dict, list)):
            pending.extend(value.values() if isinstance(value, dict) else value)


def _found(kind: str, said: str, text: str, field: str, start: int, end: int) -> Found:
    before, after = text[max(0, start - 40) : start], text[end : end + 40]
    return Found(kind, said, f"{before}{text[start:end]}{after}", field, start, end)
