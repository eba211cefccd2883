"""The own parser: a model's answer, piece by piece, to reasoning, content and calls, for engines that have none.

Special tokens are found by their ids, other markers in the text; a candidate is believed where the grammar of the
format confirms it (:class:`engine_overlay.text.grammar.Grammar`), and arguments are made JSON as they come. A whole
answer is one piece, so that streaming and full cannot differ. Engine-neutral: an engine's own classes are made around
it elsewhere.
"""

from __future__ import annotations

import functools
import re
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from engine_overlay.text import turns
from engine_overlay.text.arguments import ArgumentStream
from engine_overlay.text.candidates import Candidates, tool_names
from engine_overlay.text.events import Choice, Event, Kind
from engine_overlay.text.formats import Body, Format
from engine_overlay.text.grammar import TOOL, Role, Source, plain_name
from engine_overlay.text.guided import GuidedCalls
from engine_overlay.text.in_step import InStep
from engine_overlay.text.json_arguments import JsonArguments
from engine_overlay.text.json_call import JsonCall
from engine_overlay.text.lexer import lexers, without_aborted
from engine_overlay.text.schema import Schema
from engine_overlay.text.tools import Find, schema_of
from engine_overlay.text.vocab import Vocab

_CONTENT, _REASONING, _NAME, _ARGS = Role.CONTENT, Role.REASONING, Role.NAME, Role.ARGS
_TAG = re.compile(r"</?[^<>\s]+(?:\s[^<>]*)?>")


# An enumeration's members are slow to look up, and these are needed for every token.
_SAID_REASONING, _SAID_CONTENT, _CALL, _ARGUMENTS = Kind.REASONING, Kind.CONTENT, Kind.CALL, Kind.ARGUMENTS


def _no_properties(tools: Any, name: str) -> Mapping[str, Any]:
    return {}


def _schema(tools: list[Any], find: Find, name: str) -> Schema | None:
    return schema_of(tools, name, find)


class TextParser:
    """One answer. ``tools`` are those of the request, in any shape; ``named`` goes with ``Choice.NAMED``.

    ``thinking`` False says that the request switched reasoning off, ``in_step`` that somebody in front already keeps
    text and ids in step. ``called`` says whether there was a call that the client gets, ``reasoning_ended`` whether
    content may come, ``end_offset`` how many characters of the answer its reasoning took, end marker included (None
    while it lasts).
    """

    def __init__(
        self,
        form: Format,
        vocab: Vocab,
        *,
        tools: Iterable[Any] | None = None,
        choice: Choice = Choice.AUTO,
        named: str | None = None,
        thinking: bool | None = None,
        find: Find = _no_properties,
        in_step: bool = False,
    ) -> None:
        self._form, self._grammar, self._vocab = form, form.grammar, vocab
        self._lexers = lexers(form)
        self._calls = form.calls
        # Of nothing that belongs to this object, which would be kept by what it keeps.
        self._schema = functools.partial(_schema, list(tools or ()), find)
        self._names = tool_names(self._schema.args[0]) if form.calls else frozenset()
        self._choice, self._named = choice, named
        self._may_be_guided = choice in (Choice.REQUIRED, Choice.NAMED)
        self._any_content = False
        self._hold = self._grammar.longest_hold(self._names)
        self._marker_ids = frozenset(vocab.markers)
        self._in_step: InStep | None = None if in_step else InStep(vocab.shown)
        self._block = Candidates()
        self._seen = self._block.seen
        self._had_ids = False
        self._buffer = ""
        self._marks: deque[tuple[int, str]] = deque()
        self._offset = 0
        self._space: list[str] = []
        self._stray: list[str] = []
        self._name: list[str] = []
        self._arguments: ArgumentStream | JsonArguments | JsonCall | None = None
        self._guided: GuidedCalls | None = None
        self._index = -1
        self._begun = False
        """Whether the name of the present call is known."""
        self._told = False
        """Whether the client is told of the present call."""
        self._any_call = False
        self._events: list[Event] = []
        self.called = False
        self.end_offset: int | None = None
        self._enter(_REASONING if form.reasoning and thinking is not False else _CONTENT)
        self.reasoning_ended = self._role is _CONTENT

    def start(self, prompt_ids: Sequence[int]) -> None:
        """Tell the prompt before the answer: it may have closed the reasoning already."""
        end, start = (self._vocab.ids.get(marker or "") for marker in (self._form.end, self._form.start))
        if self._role is not _REASONING or end is None:
            return
        ids = list(prompt_ids)
        if not turns.opens(ids, start, end) and turns.closes(ids, [(end,)], self._vocab.decode):
            self._enter(_CONTENT)
            self.reasoning_ended = True

    def feed(self, text: str, ids: Sequence[int], *, last: bool = False) -> list[Event]:
        """What a delta adds; ``last`` says that it is the last one, and releases everything."""
        if self._in_step is not None:
            taken = self._in_step.feed(text, ids, last=last) if ids else (text, ids)
            if self._in_step.lags is False or last:
                self._in_step = None
            if taken is None:
                return []
            text, ids = taken
        if ids:
            self._had_ids = True
        if (
            not self._buffer
            and not last
            and self._first.isdisjoint(text)
            and self._marker_ids.isdisjoint(ids)
            and self._guided is None
        ):
            if not text:
                return []
            self._offset += len(text)
            if self._role is _REASONING:
                self._seen(text)
                return [Event(_SAID_REASONING, text)]
            if self._told and self._role is _ARGS:
                self._seen(text)
                new = self._arguments.feed(text)
                return [Event(_ARGUMENTS, new, self._index)] if new else []
            return self._plain(text)
        if self._marker_ids.isdisjoint(ids):
            self._buffer += text
        else:
            text, marks = self._vocab.placed(text, ids)
            self._marks += [(len(self._buffer) + at, marker) for at, marker in marks]
            self._buffer += text
        self._run(last)
        if last:
            self._finish()
        events, self._events = self._events, []
        return events

    # -- the lexer and the judgement of candidates

    def _run(self, final: bool) -> None:
        text, at = self._buffer, 0
        marks = self._marks
        while self._guided is None:
            lexer = self._lexers[self._role]
            limit = marks[0][0] if marks else len(text)
            found = lexer.pattern.search(text, at, limit) if lexer.pattern else None
            if found is not None and not final and found.end() == len(text) and lexer.may_grow(found.group()):
                break
            if found is not None:
                start, marker, special = found.start(), found.group(), False
            elif marks:
                (start, marker), special = marks[0], True
            else:
                break
            ahead = text[at:start]
            if special and (self._role, marker) in self._grammar.moves:
                ahead = without_aborted(ahead, marker)
            if ahead:
                self._plain(ahead, collect=True)
                if self._guided is not None:
                    at = start
                    break
            at, end = start, start + len(marker)
            real = self._judge(marker, text, end, special, final)
            if real is None:
                self._keep(text, at)
                return
            if special:
                marks.popleft()
            if real:
                self._move(marker, self._offset + end)
            else:
                self._plain(marker, collect=True)
            at = end
        if self._guided is not None:
            self._keep(text, len(text))
            marks.clear()
            self._say_guided(text[at:], final)
            return
        hold = self._lexers[self._role].unfinished(text, at)
        if final and hold:
            if self._role is _ARGS:
                if len(text) - hold > at:
                    self._plain(text[at : len(text) - hold], collect=True)
                    at = len(text) - hold
                if self._may_close():
                    # The output was cut off inside of the marker that would have ended the arguments.
                    text = text[:at]
            hold = 0
        if len(text) - hold > at:
            self._plain(text[at : len(text) - hold], collect=True)
            if self._guided is not None and hold:
                self._say_guided(text[len(text) - hold :], final)
                hold = 0
        self._keep(text, len(text) - hold)

    def _keep(self, text: str, at: int) -> None:
        self._buffer = text[at:]
        self._offset += at
        self._marks = deque((where - at, marker) for where, marker in self._marks)

    def _judge(self, marker: str, text: str, end: int, special: bool, final: bool) -> bool | None:
        role = self._role
        known = (role, marker) in self._grammar.moves
        if not known and role is not _ARGS:
            return False
        source = Source.UNKNOWN
        if special:
            guarded = role is _ARGS and self._calls is not None and marker in self._calls.guarded
            source = Source.UNKNOWN if guarded else Source.SPECIAL
        elif self._had_ids and marker in self._vocab.ids:
            source = Source.SPELLED
        before = self._block.before(json_open=getattr(self._arguments, "in_string", False))
        after = text[end : end + self._hold + 1]
        if not known:
            return self._grammar.ends_open_call(marker, before, after, self._names, final=final, source=source)
        return self._grammar.judge(role, marker, before, after, self._names, final=final, source=source)

    def _may_close(self) -> bool:
        """Whether the arguments may end here."""
        return self._grammar.closes(self._block.before(json_open=getattr(self._arguments, "in_string", False)))

    # -- the machine

    def _enter(self, role: Role) -> None:
        self._role = role
        self._first = self._lexers[role].first
        self._block.new_block()
        self._seen = self._block.seen

    def _move(self, marker: str, offset: int) -> None:
        role = self._role
        if role is _ARGS and (role, marker) not in self._grammar.moves:
            self._end_call(complete=True)
            role = Role.BETWEEN
        to = self._grammar.moves[role, marker]
        if role is _NAME:
            self._end_name(to, marker)
        elif role is _ARGS:
            self._end_call(complete=True)
        elif role in TOOL and to in (_CONTENT, _NAME):
            self._flush_stray()
        if to in TOOL and role not in TOOL and not self._any_content:
            # In front of the first call it says nothing; between two texts it belongs to what is said.
            self._space = []
        if role is _REASONING and to is not _REASONING:
            self.reasoning_ended, self.end_offset = True, offset
            if to in TOOL:
                self.end_offset = offset - len(marker)
        if to is _NAME:
            self._name = []
        elif to is _ARGS and role is not _NAME:
            self._index += 1
            self._begun = False
            self._arguments = JsonCall(self._schema)
        self._enter(to)

    def _plain(self, text: str, *, collect: bool = False) -> list[Event]:
        """Text that is no marker, in the present state."""
        role = self._role
        self._seen(text)
        events: list[Event] = self._events if collect else []
        if role is _CONTENT:
            self._content(text, events)
        elif role is _REASONING:
            events.append(Event(_SAID_REASONING, text))
        elif role is _ARGS:
            self._feed_arguments(text, events)
        elif role is _NAME:
            self._name.append(text)
        else:
            self._stray.append(text)
        return events

    def _content(self, text: str, events: list[Event]) -> None:
        # White space waits: in front of a call, and behind the last one, it is no content.
        if self._space or text[-1].isspace():
            kept = text.rstrip()
            if not kept:
                self._space.append(text)
                return
            self._space, text = [text[len(kept) :]], "".join((*self._space, kept))
        if self._may_be_guided and not self._any_call and self._is_guided(text):
            self._guided = GuidedCalls(self._names, self._named, self._schema)
            self._tell(self._guided.feed("".join((text, *self._space))), events)
            self._space = []
            return
        events.append(Event(_SAID_CONTENT, text))
        self._any_content = True

    def _is_guided(self, text: str) -> bool:
        return not self._any_content and text.lstrip()[0] in ("[{" if self._named is None else "{")

    def _say_guided(self, text: str, final: bool) -> None:
        self._offset += len(text)
        self._tell(self._guided.feed(text, last=final), self._events)

    def _tell(self, said: Iterable[Any], events: list[Event]) -> None:
        for piece in said:
            if piece.name is not None:
                self._index += 1
                self._begin(piece.name, None, events)
            elif piece.arguments:
                events.append(Event(_ARGUMENTS, piece.arguments, self._index))
            elif piece.text:
                events.append(Event(_SAID_CONTENT, piece.text))

    def _flush_stray(self) -> None:
        """What stood between the markers of a block and is no markup was said to the user."""
        text = _TAG.sub("", "".join(self._stray)).strip()
        self._stray.clear()
        if any(char.isalnum() for char in text):
            self._space = []
            self._events.append(Event(_SAID_CONTENT, text))
            self._any_content = True

    # -- calls

    def _begin(self, name: str, call_id: str | None, events: list[Event]) -> None:
        self._any_call = self._begun = True
        if self._choice is not Choice.NONE:
            self.called = self._told = True
            events.append(Event(_CALL, name, self._index, call_id))

    def _end_name(self, to: Role, marker: str) -> None:
        written = "".join(self._name).strip()
        name = plain_name(written)
        self._name = []
        if name not in self._names:
            return
        self._index += 1
        self._begin(name, written if self._calls.ids and ":" in written else None, self._events)
        if self._calls.body is Body.MARKUP:
            self._arguments = ArgumentStream(self._calls.syntax, self._schema(name))
        else:
            self._arguments = JsonArguments(self._schema(name))
        if to is not _ARGS:
            self._end_call(complete=True)
        elif (_ARGS, marker) in self._grammar.moves:
            self._feed_arguments(marker, self._events)

    def _feed_arguments(self, text: str, events: list[Event]) -> None:
        arguments = self._arguments
        if arguments is None:
            return
        new = arguments.feed(text)
        if type(arguments) is JsonCall and not self._begun:
            if arguments.name not in self._names:
                return
            self._begin(arguments.name, None, events)
        if new and self._choice is not Choice.NONE:
            events.append(Event(_ARGUMENTS, new, self._index))

    def _end_call(self, *, complete: bool) -> None:
        arguments, self._arguments, self._told = self._arguments, None, False
        if arguments is None:
            return
        new = arguments.finish(complete) if type(arguments) is ArgumentStream else arguments.finish()
        if type(arguments) is JsonCall and not self._begun:
            if arguments.name is None or arguments.name not in self._names:
                self._index -= 1
                return
            self._begin(arguments.name, None, self._events)
        if new and self._choice is not Choice.NONE:
            self._events.append(Event(_ARGUMENTS, new, self._index))

    def _finish(self) -> None:
        if self._role is _ARGS:
            self._end_call(complete=False)
        self._flush_stray()
        if (space := "".join(self._space)) and not self._any_call:
            self._events.append(Event(_SAID_CONTENT, space))
        self._space = []
