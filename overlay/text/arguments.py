"""The arguments of a call, from the format's markup to JSON, while they are being written.

:class:`ArgumentStream` looks at each character a bounded number of times, so a long argument costs what its length
costs. What it gives piece by piece is, put together, what it gives for the whole text at once.
"""

from __future__ import annotations

import enum
import json
import re
from typing import Any

from engine_overlay.text.json_arguments import JsonArguments, deep_json
from engine_overlay.text.markup import MAX_HEAD, Syntax, Trim, trimmed
from engine_overlay.text.readings import readings
from engine_overlay.text.schema import Schema, dump

# What a cut-off answer may end with behind a closed value: the beginning of a tag, also one cut inside a character.
_CLOSING = re.compile(r"<(?:/[^<>\n]{0,64}|[^<>\s]{0,16}\ufffd)\Z")
_BLANK = re.compile(r"\s*")
_MARKED = re.compile(r'[<\]"\\\x00-\x1f]')
"""What every marker of a markup format begins with, and what JSON escapes."""


class _At(enum.Enum):
    BETWEEN = "outside of all arguments"
    HEAD = "in an opening tag"
    VALUE = "in a value"
    CLOSED = "after a closing tag that only counts if an argument or the end follows"


class _Value(enum.Enum):
    TEXT = "a string, passed on as it comes"
    HELD = "converted when it is whole"
    DROPPED = "without a name"


# An enumeration's members are slow to look up, and these are needed for every token.
_VALUE, _TEXT = _At.VALUE, _Value.TEXT


class ArgumentStream:
    """The arguments of one call. ``schema`` is None when the request does not declare the tool.

    A closing tag closes a value only before the next opening tag or the end of the call; anywhere else it is text.
    An opening tag inside a value that was not closed counts when it names a parameter of the tool that has no value
    yet, at the start of a line or in a value of one line; anywhere else it is text too.
    """

    def __init__(self, syntax: Syntax, schema: Schema | None) -> None:
        self._syntax, self._schema = syntax, schema
        self._at = _At.BETWEEN
        self._rest = ""
        self._held: list[str] = []
        self._stray: list[str] = []
        self._names: set[str] = set()
        self._wrapper: tuple[str, str, str | None] | None = None
        self._started = False
        self._wait = 0
        self._out: list[str] = []
        self._sent: list[str] = []
        self._open(None)
        self.finished = False

    @property
    def json(self) -> str:
        """All that was given so far."""
        text = "".join(self._sent)
        self._sent = [text]
        return text

    def feed(self, raw: str) -> str:
        """The JSON that ``raw`` adds."""
        if self.finished:
            return ""
        if self._at is _VALUE and self._kind is _TEXT and self._begun and not self._rest and not self._tail:
            # Once per token of a long string: nothing in it that ends the value, or looks different in JSON.
            if not (self._line_blank or _MARKED.search(raw) or self._inline and raw[-1:].isspace()):
                self._sent.append(raw)
                return raw
        self._scan(self._rest + raw)
        return self._give()

    def finish(self, complete: bool) -> str:
        """The rest of the JSON. ``complete``: the call was closed, and not cut off by the end of the output."""
        if self.finished:
            return ""
        while self._at is _At.HEAD and self._inside and (complete or self._syntax.in_value.search(self._rest)):
            # An opening tag that did not end is none: what seemed to be its head is more of the value.
            rest, self._rest = self._rest, ""
            self._not_an_opener(0)
            self._scan(rest)
        rest, self._rest, self.finished = self._rest, "", True
        if self._at is _At.HEAD and self._inside:
            # Cut off in what may be an opening tag.
            self._close(False)
        elif self._at is _At.HEAD:
            self._close(True)
        elif self._at is _At.VALUE:
            if complete or len(rest) < 2:
                self._text(rest)
            self._close(False)
        elif self._at is _At.CLOSED:
            if complete and rest:
                self._refute(rest)
                self._close(False)
            else:
                self._close(True)
        elif rest:
            self._keep_stray(rest)
        self._out.append(self._end())
        return self._give()

    def _give(self) -> str:
        new = "".join(self._out)
        self._out.clear()
        if new:
            self._sent.append(new)
        return new

    def _scan(self, text: str) -> None:
        at, self._wait, self._rest = 0, 0, ""
        while at < len(text):
            start, at = at, self._step(text, at)
            if at < 0:
                self._rest = text[max(start, self._wait) :]
                break

    # -- the machine: each step returns where the next one starts, or -1 when more text is needed; what it did not
    # use is kept, from where it started or, when that is later, from ``_wait``

    def _step(self, text: str, at: int) -> int:
        if self._at is _At.VALUE:
            return self._in_value(text, at)
        if self._at is _At.HEAD:
            return self._in_head(text, at)
        if self._at is _At.CLOSED:
            return self._after_closer(text, at)
        return self._between(text, at)

    def _between(self, text: str, at: int) -> int:
        opener = self._syntax.opener
        start = text.find(opener.first, at)
        if start < 0:
            self._keep_stray(text[at:])
            return len(text)
        if start > at:
            self._keep_stray(text[at:start])
            return start
        end = opener.end(text, at)
        if end < 0:
            if opener.begun(text, at):
                return -1
            self._keep_stray(text[at])
            return at + 1
        return self._enter_head(text, at, end, inside=False)

    def _enter_head(self, text: str, start: int, end: int, *, inside: bool) -> int:
        self._marker, self._inside, self._at = text[start:end], inside, _At.HEAD
        return end

    def _in_head(self, text: str, at: int) -> int:
        syntax = self._syntax
        limit = at + MAX_HEAD
        end = text.find(syntax.head_end, at, limit)
        line = -1 if syntax.head_lines else text.find("\n", at + _blank(text, at), limit)
        if end >= 0 and (line < 0 or end < line):
            end += len(syntax.head_end)
            found = syntax.head.fullmatch(text, at, end)
            if found:
                return self._opened(found.group("name").strip(), found.groupdict().get("string"), end, at)
        elif line < 0 and len(text) < limit:
            return -1
        if self._inside:
            return self._not_an_opener(at)
        self._close(True)
        return self._malformed(text[at:limit], at)

    def _opened(self, name: str, says: str | None, end: int, at: int) -> int:
        if self._inside:
            if not self._is_new(name):
                return self._not_an_opener(at)
            self._close(False)
        else:
            self._close(True)
        self._open(name, says)
        self._at = _At.VALUE
        return end

    def _is_new(self, name: str) -> bool:
        """Whether an opening tag in the middle of an open value starts the next argument."""
        if self._schema is None or not self._schema.properties:
            return True
        if name not in self._schema.properties or name in self._names:
            return False
        return self._line_blank or not self._has_newline

    def _not_an_opener(self, at: int) -> int:
        self._text(self._marker)
        self._nested = True
        self._at = _At.VALUE
        return at

    def _malformed(self, head: str, at: int = 0) -> int:
        """An opening tag without its end: a parameter's name on the first line is taken, anything else has no name."""
        line = head.partition("\n")[0]
        name = line.strip().strip("\"'").strip()
        self._at = _At.VALUE
        if self._schema is not None and name in self._schema.properties and name not in self._names:
            self._open(name, None)
            return at + len(line)
        self._open(None)
        return at

    def _in_value(self, text: str, at: int) -> int:
        found = self._syntax.in_value.search(text, at)
        start = found.start() if found else len(text)
        if start > at:
            self._text(text[at:start])
        if found is None:
            return start
        if found.lastgroup is None:
            self._wait = start
            return -1
        if found.lastgroup == "closer":
            self._held, self._at = [found.group()], _At.CLOSED
            return found.end()
        return self._enter_head(text, start, found.end(), inside=True)

    def _after_closer(self, text: str, at: int) -> int:
        blank = _blank(text, at)
        if blank:
            self._held.append(text[at : at + blank])
            return at + blank
        opener = self._syntax.opener
        end = opener.end(text, at)
        if end >= 0:
            return self._enter_head(text, at, end, inside=False)
        if opener.begun(text, at) or _CLOSING.match(text, at):
            return -1
        end = self._syntax.closer.end(text, at) if self._syntax.says_string and not self._nested else -1
        if end >= 0:
            # DeepSeek's models close a value twice; elsewhere the first one may be the value's own.
            self._held.append(text[at:end])
            return end
        self._refute("")
        return at

    def _refute(self, more: str) -> None:
        self._text("".join(self._held) + more)
        self._held, self._at = [], _At.VALUE

    def _keep_stray(self, text: str) -> None:
        # For a body that turns out to be JSON.
        if not self._names:
            self._stray.append(text)

    # -- values

    def _open(self, name: str | None, says: str | None = None) -> None:
        self._name, self._says = name, says
        self._parts: list[str] = []
        self._tail: list[str] = []
        self._begun, self._inline = False, False
        self._line_blank, self._has_newline, self._nested = True, False, False
        self._kind = _Value.DROPPED
        if name is None:
            return
        shape = self._schema.of(name) if self._schema is not None else None
        wraps = self._wraps(name)
        self._flush_wrapper()
        if wraps:
            self._kind = _Value.HELD
        elif shape is not None:
            self._kind = _Value.TEXT if shape.is_text else _Value.HELD
        else:
            says_text = not self._syntax.says_string or says == "true"
            self._kind = _Value.TEXT if says_text else _Value.HELD
        if not wraps:
            self._key(name, '"' if self._kind is _Value.TEXT else "")
        self._names.add(name)

    def _key(self, name: str, quote: str) -> None:
        self._out.append(f"{', ' if self._started else '{'}{dump(name)}: {quote}")
        self._started = True

    def _text(self, text: str) -> None:
        if not text:
            return
        newline = text.rfind("\n")
        if newline >= 0:
            self._has_newline, self._line_blank = True, text[newline:].isspace()
        elif self._line_blank:
            self._line_blank = text.isspace()
        if self._kind is _Value.HELD:
            self._parts.append(text)
        elif self._kind is _Value.TEXT:
            self._string(text)

    def _string(self, text: str) -> None:
        """Pass a string on, but for what stands at its end and may belong to the template."""
        trim = self._syntax.trim
        if not self._begun:
            self._inline = trim is Trim.EDGES and (self._inline or text[0] != "\n")
            if trim is not Trim.NOTHING and text[0] == "\n" and not self._inline:
                text = text[1:]
                self._begun = True
            elif self._inline:
                text = text.lstrip()
            self._begun = self._begun or bool(text)
        if not text:
            return
        keep = len(text.rstrip()) if self._inline else len(text) - text.endswith("\n")
        if not keep and self._inline:
            self._tail.append(text)
            return
        self._say("".join((*self._tail, text[:keep])))
        self._tail = [text[keep:]] if keep < len(text) else []

    def _say(self, text: str) -> None:
        if text:
            self._out.append(json.dumps(text, ensure_ascii=False)[1:-1])

    def _close(self, closed: bool) -> None:
        """The value ends here; ``closed`` says by its own closing tag."""
        if self._name is None:
            return
        trim = self._syntax.trim
        if self._kind is _Value.TEXT:
            if trim is Trim.NOTHING and closed:
                self._say("".join(self._tail))
            self._out.append('"')
        else:
            raw = trimmed("".join(self._parts), trim)
            if not closed and trim is Trim.NOTHING:
                raw = raw.removesuffix("\n")
            if self._wraps(self._name, closing=True):
                self._wrapper = (self._name, raw, self._says)
            else:
                self._out.append(self._value(self._name, raw, self._says))
        self._name = None

    def _value(self, name: str, raw: str, says: str | None) -> str:
        """The JSON of a value."""
        shape = self._schema.of(name) if self._schema is not None else None
        text_too = "string" in shape.kinds if shape is not None else says == "true"
        if not text_too and (written := deep_json(raw)) is not None:
            return written
        if shape is not None:
            return dump(self._schema.convert(raw, shape))
        return dump(raw if text_too else next(readings(raw, python=False), raw))

    # -- a wrapper: <parameter name="arguments">{...all of them...}</parameter>

    def _wraps(self, name: str, *, closing: bool = False) -> bool:
        if name not in self._syntax.wrappers or self._schema is None or not self._schema.properties:
            return False
        alone = self._names == {name} if closing else not self._names
        return alone and name not in self._schema.properties

    def _flush_wrapper(self) -> None:
        """Another argument follows, so the first one was no wrapper."""
        if self._wrapper is not None:
            name, raw, says = self._wrapper
            self._wrapper = None
            self._key(name, "")
            self._out.append(self._value(name, raw, says))

    def _end(self) -> str:
        """What closes the object; the object itself when the call had none of the format's arguments."""
        if self._wrapper is not None:
            inner = _object(self._wrapper[1])
            if inner is not None and inner.keys() <= self._schema.properties.keys():
                return self._whole(inner)
            self._flush_wrapper()
        elif not self._names:
            stray = "".join(self._stray)
            if (written := deep_json(stray)) is not None:
                return JsonArguments(self._schema).whole(written)
            return self._whole(_object(stray) or {})
        return "}"

    def _whole(self, values: dict[str, Any]) -> str:
        if self._schema is None:
            return dump(values)
        shapes = {name: self._schema.of(name) for name in values}
        return dump({n: v if shapes[n] is None else self._schema.conform(v, shapes[n]) for n, v in values.items()})


def _blank(text: str, at: int) -> int:
    return _BLANK.match(text, at).end() - at


def _object(text: str) -> dict[str, Any] | None:
    value = next(readings(text, python=False), None)
    return value if isinstance(value, dict) else None
