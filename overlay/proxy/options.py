"""What the filter may do, from the command line or from ``ENGINE_OVERLAY_PROXY``."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from engine_overlay.proxy.sse import MAX_EVENT
from engine_overlay.proxy.tags import DEFAULT, NAME, Tags
from engine_overlay.settings import suggest

NUMBERS = {
    "thinking_token_budget": "tokens of thought for requests that name none; without it nothing is put in",
    "empty_thoughts": "empty thoughts in a row after which a stream is ended; 0 for never",
    "blank_deltas": "deltas in a row with nothing in them after which a stream is ended; 0 for never",
    "max_body": "bytes of a request, or of an answer that is no stream, that are read; more is passed on unread",
    "max_event": "bytes of one event of a stream that are waited for; with more the stream is passed on unread",
    "max_choices": "answers in one stream that are looked at; those with other indices pass as they are",
    "max_memory": "bytes that all requests together may hold back; what is over that is passed on unread",
}
NAMES = {
    "thought_tag": "name of one more tag around thoughts, beside think",
    "call_tag": "name of one more tag around calls, beside tool_call",
}


class BadOption(ValueError):
    """An option that cannot be used; its text says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """``thinking_token_budget``: tokens or None. ``empty_thoughts``, ``blank_deltas``: counts, 0 for no limit.

    The limits from ``max_body`` on are what a stranger can make the filter hold or go through; 0 reads nothing.
    """

    thinking_token_budget: int | None = None
    empty_thoughts: int = 8
    blank_deltas: int = 1000
    max_body: int = 32 * 1024 * 1024
    max_event: int = MAX_EVENT
    max_choices: int = 1024
    max_memory: int = 256 * 1024 * 1024
    tags: Tags = field(default=DEFAULT)


def number(name: str, text: str) -> int:
    """A count as text. Raises BadOption."""
    if not text.isascii() or not text.isdigit() or len(text) > 9:
        raise BadOption(f"{name} is {text!r}, not a whole number from 0 to 999999999")
    return int(text)


def tags(thoughts: Iterable[str], calls: Iterable[str]) -> Tags:
    """The usual tags and these. Raises BadOption."""
    for name in (*thoughts, *calls):
        if not NAME.fullmatch(name):
            raise BadOption(f"{name!r} is no name of a tag; give it without its brackets, such as mm:think")
    return Tags((*DEFAULT.thoughts, *thoughts), (*DEFAULT.calls, *calls))


def parse(text: str) -> Options:
    """``thinking_token_budget=2048,thought_tag=mm:think``. Raises BadOption."""
    numbers: dict[str, int] = {}
    names: dict[str, list[str]] = {name: [] for name in NAMES}
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, equals, value = (piece.strip() for piece in part.partition("="))
        name = name.lower().replace("-", "_")
        known = (*NUMBERS, *NAMES)
        if not equals or name not in known:
            raise BadOption(f"{part!r} is no option{suggest(name, known)}; they are {', '.join(known)}")
        if name in NUMBERS:
            numbers[name] = number(name, value)
        else:
            names[name].append(value)
    return Options(**numbers, tags=tags(names["thought_tag"], names["call_tag"]))
