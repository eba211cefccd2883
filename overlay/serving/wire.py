"""The parser's events as the message objects of an engine, and the texts that carry them through its serving code."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from engine_overlay.text.events import Event, Kind
from engine_overlay.text.spelled_end import LastText


class Carrier(LastText):
    """Text of an output that has been parsed already; ``parsed`` is what came of it.

    A delta carries its ``DeltaMessage`` or None, a whole answer its :class:`Whole`. It is marked as the last text of
    a stream, so that nobody who waits for more holds it back or replaces it.
    """

    parsed: Any

    def __new__(cls, text: str, parsed: Any) -> Carrier:
        made = super().__new__(cls, text)
        made.parsed = parsed
        return made


@dataclass(slots=True)
class Whole:
    """A whole answer; ``calls`` are the engine's ``FunctionCall``, with the id that the model wrote or None."""

    reasoning: str | None = None
    content: str | None = None
    calls: list[Any] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class CallIds:
    """How the ids of calls are made that the model gave none: ``kind`` as the serving code has it."""

    kind: str = "random"
    before: int = 0


# An enumeration's members are slow to look up, and these are needed for every token.
_CONTENT, _ARGUMENTS = Kind.CONTENT, Kind.ARGUMENTS


class Wire:
    """The message classes of one engine, found in ``classes``; ``make_id`` makes ids of calls.

    ``count_calls`` counts those of a conversation.
    """

    def __init__(
        self, classes: Any, make_id: Callable[..., str], count_calls: Callable[[Any], int] = lambda conversation: 0
    ) -> None:
        self._delta, self._call = classes.DeltaMessage, classes.DeltaToolCall
        self._function, self._whole_call = classes.DeltaFunctionCall, classes.FunctionCall
        self._extracted, self._tool_call = classes.ExtractedToolCallInformation, classes.ToolCall
        self._make_id, self._count_calls = make_id, count_calls

    def call_ids(self, kind: str | None, conversation: Any = None) -> CallIds:
        """Kimi's ids count the calls of the conversation."""
        counts = kind == "kimi_k2" and conversation is not None
        return CallIds(kind or "random", self._count_calls(conversation) if counts else 0)

    def empty(self) -> Any:
        """A ``DeltaMessage`` that says nothing."""
        return self._delta()

    def delta(self, events: list[Event], ids: CallIds, *, reasoning: bool = True) -> Any:
        """One ``DeltaMessage`` of all events, or None when there is nothing to send."""
        if len(events) == 1:
            # Once per token.
            kind, text, index, _ = events[0]
            if kind is _CONTENT:
                return self._delta(content=text)
            if kind is _ARGUMENTS:
                return self._delta(tool_calls=[self._call(index=index, function=self._function(arguments=text))])
        # Joined at the end: one delta may have the whole of a long answer.
        texts: dict[str, list[str]] = {}
        calls: dict[int, Any] = {}
        arguments: dict[int, list[str]] = {}
        for event in events:
            if event.kind is Kind.REASONING:
                if reasoning:
                    texts.setdefault("reasoning", []).append(event.text)
            elif event.kind is Kind.CONTENT:
                texts.setdefault("content", []).append(event.text)
            elif event.kind is Kind.CALL:
                call_id = event.call_id or self._make_id(
                    id_type=ids.kind, func_name=event.text, idx=ids.before + event.index
                )
                function = self._function(name=event.text, arguments="")
                calls[event.index] = self._call(index=event.index, id=call_id, type="function", function=function)
                arguments[event.index] = []
            else:
                if event.index not in calls:
                    calls[event.index] = self._call(index=event.index, function=self._function(arguments=""))
                arguments.setdefault(event.index, []).append(event.text)
        for index, pieces in arguments.items():
            calls[index].function.arguments = "".join(pieces)
        fields: dict[str, Any] = {name: "".join(pieces) for name, pieces in texts.items()}
        if calls:
            fields["tool_calls"] = list(calls.values())
        return self._delta(**fields) if fields else None

    def whole(self, events: Iterable[Event], *, reasoning: bool = True, nonempty: bool = False) -> Whole:
        """All events of an answer together."""
        texts: dict[Kind, list[str]] = {Kind.REASONING: [], Kind.CONTENT: []}
        calls: dict[int, list[Any]] = {}
        for event in events:
            if event.kind is Kind.CALL:
                calls[event.index] = [event.text, event.call_id, []]
            elif event.kind is Kind.ARGUMENTS:
                calls[event.index][2].append(event.text)
            else:
                texts[event.kind].append(event.text)
        thought, content = ("".join(texts[kind]) for kind in (Kind.REASONING, Kind.CONTENT))
        if nonempty and not content and not calls:
            thought, content = content, thought
        if calls and not content.strip():
            content = ""
        made = [
            self._whole_call(id=call_id, name=name, arguments="".join(said)) for name, call_id, said in calls.values()
        ]
        return Whole(thought or None if reasoning else None, content or None, made)

    def extracted(self, whole: Whole) -> Any:
        """What ``extract_tool_calls`` of a tool parser returns."""
        calls = []
        for index, call in enumerate(whole.calls):
            call_id = call.id or self._make_id(id_type="random", func_name=call.name, idx=index)
            calls.append(self._tool_call(id=call_id, type="function", function=call))
        return self._extracted(tools_called=bool(calls), tool_calls=calls, content=whole.content)


def parts(events: Iterable[Event]) -> list[list[Event]]:
    """The events cut where their kind or their call changes, the name of a call always alone."""
    groups: list[list[Event]] = []
    before: tuple[Any, ...] | None = None
    for event in events:
        key = (event.kind, event.index)
        if key != before or event.kind is Kind.CALL:
            groups.append([])
        groups[-1].append(event)
        before = key
    return groups
