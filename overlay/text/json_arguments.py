"""The arguments of a call that a model writes as JSON, made valid and typed while they are being written.

:class:`JsonArguments` passes healthy JSON on as it comes. A string that is not closed, a trailing or a missing comma,
a raw line end in a string, a Python ``True`` and a value that was cut off are mended on the way, so that what it has
given is valid JSON at the end of every call. Each character is looked at a bounded number of times.
"""

from __future__ import annotations

import json
import re
from typing import Any

from engine_overlay.text.nesting import too_deep
from engine_overlay.text.readings import is_json
from engine_overlay.text.schema import Schema, Shape, dump

_PLAIN = re.compile(r'[^"\\\x00-\x1f]+')
_PLAIN_SINGLE = re.compile(r"""[^'"\\\x00-\x1f]+""")
_WORD = re.compile(r"[^\s,:\[\]{}\"']+")
_SPACE = re.compile(r"[ \t\r\n]+")
_ESCAPE = re.compile(r'\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})')
_ESCAPE_BEGUN = re.compile(r"\\(?:u[0-9a-fA-F]{0,3})?\Z")
_PYTHON = {"True": "true", "False": "false", "None": "null", "NaN": "null", "undefined": "null"}
_BEGINS = {'"': "string", "{": "object", "[": "array"}
_CLOSES = {"{": "}", "[": "]"}
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_NUMBER_CUT = re.compile(r"(-?)0*([0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?)")


class JsonArguments:
    """One JSON value, which for a call is an object. ``schema`` types its members; None leaves them as they are.

    ``done`` says that the value is whole; ``rest`` is then what came behind it. A member whose type does not fit its
    schema is held back until it is whole and converted; every other one is passed on at once.
    """

    def __init__(self, schema: Schema | None, *, any_value: bool = False) -> None:
        self._schema, self._any = schema, any_value
        self._stack: list[str] = []
        self._wants = "value"  # or "key", "colon", "more": what comes next
        self._string: str | None = None  # "key" or "value" inside of a string
        self._quote = '"'
        self._word: list[str] = []
        self._pending: list[str] = []  # separators and a key that are only said when a value follows
        self._key: list[str] = []
        self._shape: Shape | None = None
        self._held: list[str] | None = None
        self._tail = ""
        self._out: list[str] = []
        self._sent: list[str] = []
        self._behind: list[str] = []
        self.done = False

    @property
    def json(self) -> str:
        """All that was given so far."""
        text = "".join(self._sent)
        self._sent = [text]
        return text

    @property
    def in_string(self) -> bool:
        """Whether the text so far ends inside of a string, where no marker of a format is real."""
        return self._string is not None

    @property
    def rest(self) -> str:
        """What came behind the value."""
        text = "".join(self._behind)
        self._behind = [text]
        return text

    def feed(self, raw: str) -> str:
        """The JSON that ``raw`` adds."""
        said, end = self.take(raw, 0)
        if end < len(raw):
            self._behind.append(raw[end:])
        return said

    def take(self, raw: str, start: int) -> tuple[str, int]:
        """(the JSON that ``raw`` adds from ``start`` on, where in it the value ends).

        For those who have many values in one text: what stands behind this one is neither looked at nor copied.
        """
        if self.done:
            return "", start
        if self._string == "value" and self._held is None and not start and not self._tail and self._quote == '"':
            # Once per token of a long string.
            found = _PLAIN.match(raw)
            if found and found.end() == len(raw):
                self._sent.append(raw)
                return raw, len(raw)
        text, at, shift = raw, start, 0
        if self._tail:
            text, at, shift = self._tail + raw[start:], 0, start - len(self._tail)
            self._tail = ""
        while at < len(text) and not self.done:
            at = self._step(text, at)
        return self._give(), at + shift

    def finish(self) -> str:
        """The rest of the JSON: what is open is closed, a member without a value is left out."""
        if not self.done:
            if self._string is not None:
                self._end_string()
            elif self._word:
                self._end_word(cut=True)
            while self._stack:
                self._close(self._stack[-1])
            if not self.done:
                self._whole_root()
        return self._give()

    def whole(self, raw: str) -> str:
        """The JSON of all of a text at once."""
        return self.feed(raw) + self.finish()

    def _give(self) -> str:
        new = "".join(self._out)
        self._out.clear()
        if new:
            self._sent.append(new)
        return new

    def _say(self, text: str) -> None:
        (self._out if self._held is None else self._held).append(text)

    # -- one step: returns where the next one starts

    def _step(self, text: str, at: int) -> int:
        if self._string is not None:
            return self._in_string(text, at)
        char = text[at]
        if self._word:
            found = _WORD.match(text, at)
            if found:
                self._word.append(found.group())
                return found.end()
            self._end_word()
            return at
        space = _SPACE.match(text, at)
        if space:
            if self._stack:
                waits = self._wants == "value" or self._wants == "key" or self._pending
                (self._pending.append if waits else self._say)(space.group())
            return space.end()
        if char in "\"'":
            self._begin_string(char)
        elif char in "{[":
            self._open(char)
        elif char in "}]":
            self._close(char)
        elif char == ",":
            if self._stack and self._wants == "more":
                self._pending.append(",")
                self._wants = "key" if self._stack[-1] == "{" else "value"
        elif char == ":":
            if self._wants == "colon":
                self._pending.append(":")
                self._wants = "value"
        else:
            found = _WORD.match(text, at)
            if found:
                self._word.append(found.group())
                return found.end()
        return at + 1

    # -- strings

    def _begin_string(self, quote: str) -> None:
        self._quote = quote
        if self._stack and self._stack[-1] == "{" and self._wants in ("key", "more"):
            self._comma()
            self._string, self._key = "key", []
            return
        self._value_begins("string")
        self._string = "value"
        self._say('"')

    def _in_string(self, text: str, at: int) -> int:
        plain = (_PLAIN if self._quote == '"' else _PLAIN_SINGLE).match(text, at)
        if plain:
            self._in_text(plain.group())
            return plain.end()
        char = text[at]
        if char == self._quote:
            self._end_string()
            return at + 1
        if char == '"':
            self._in_text('\\"')
            return at + 1
        if char == "\\":
            found = _ESCAPE.match(text, at)
            if found:
                self._in_text(found.group())
                return found.end()
            if _ESCAPE_BEGUN.match(text, at):
                self._tail = text[at:]
                return len(text)
            # No escape of JSON: the backslash stands for itself, but a Python \' is only a quote.
            self._in_text("" if text.startswith("\\'", at) else "\\\\")
            return at + 1
        self._in_text(json.dumps(char)[1:-1])
        return at + 1

    def _in_text(self, text: str) -> None:
        if self._string == "key":
            self._key.append(text)
        else:
            self._say(text)

    def _end_string(self) -> None:
        self._tail = ""
        which, self._string = self._string, None
        if which == "key":
            self._wants = "colon"
            self._pending.append(f'"{"".join(self._key)}"')
        else:
            self._say('"')
            self._value_ends()

    # -- words: numbers, true, false, null

    def _end_word(self, *, cut: bool = False) -> None:
        word = "".join(self._word)
        self._word.clear()
        if self._wants == "colon":
            return
        if self._stack and self._stack[-1] == "{" and self._wants in ("key", "more"):
            # A key without quotes.
            self._comma()
            self._key = [json.dumps(word, ensure_ascii=False)[1:-1]]
            self._pending.append(f'"{self._key[0]}"')
            self._wants = "colon"
            return
        self._value_begins("word")
        self._say(_as_json(word, cut))
        self._value_ends()

    # -- values

    def _comma(self) -> None:
        if self._wants == "more" and "," not in (pending := "".join(self._pending)):
            self._pending = [", ", pending.lstrip()]

    def _value_begins(self, kind: str) -> None:
        if self._wants == "colon":
            self._pending.append(": ")
        elif self._wants == "more":
            self._comma()
        if self._stack:
            self._say("".join(self._pending))
        self._pending.clear()
        if self._stack == ["{"]:
            # Of a member; what is inside of one that is held belongs to it.
            self._shape = self._schema.of(json.loads(f'"{"".join(self._key)}"')) if self._schema is not None else None
            if self._shape is not None and not _passes(kind, self._shape):
                self._held = []
        elif not self._stack and kind != "object" and not self._any:
            # The arguments in a string of their own, or nothing that can be arguments.
            self._held = []

    def _value_ends(self) -> None:
        self._wants = "more"
        if not self._stack:
            self._whole_root()
        elif self._held is not None and self._stack == ["{"]:
            self._release()

    def _release(self) -> None:
        raw, self._held = "".join(self._held or ()), None
        value = loads(raw, _NOTHING)
        if value is _NOTHING or not is_json(value):
            self._out.append(raw)
            return
        mended = self._schema.conform(value, self._shape)
        self._out.append(raw if _same(mended, value) else dump(mended))

    def _whole_root(self) -> None:
        self.done = True
        if self._held is None:
            if not self.json and not self._out and not self._any:
                self._out.append("{}")
            return
        raw, self._held = "".join(self._held), None
        value = loads(raw)
        in_string = isinstance(value, str) and "{" in value[:64]
        self._out.append(JsonArguments(self._schema).whole(value.strip()) if in_string else "{}")

    def _open(self, bracket: str) -> None:
        if self._stack and self._stack[-1] == "{" and self._wants in ("key", "more"):
            return
        self._value_begins(_BEGINS[bracket])
        self._stack.append(bracket)
        self._wants = "key" if bracket == "{" else "value"
        self._say(bracket)

    def _close(self, bracket: str) -> None:
        if not self._stack:
            return
        opened = self._stack.pop()
        # A separator, or a key, behind which nothing came.
        blank = "".join(self._pending)
        self._pending.clear()
        self._say((blank if blank.isspace() else "") + _CLOSES[opened])
        self._value_ends()


def _passes(kind: str, shape: Shape) -> bool:
    """Whether a value that begins like this can be passed on before it is whole."""
    kinds = shape.kinds
    if kind == "word" or shape.literals:
        return False
    return not kinds or kind in kinds


def _same(one: Any, other: Any) -> bool:
    """Equality that tells 1 from 1.0 and from true."""
    return type(one) is type(other) and one == other and dump(one) == dump(other)


_NOTHING = object()


def loads(raw: str, default: Any = None) -> Any:
    """The value of ``raw``; ``default`` when it is no JSON, or nested so deeply that nobody reads it."""
    try:
        return default if too_deep(raw) else json.loads(raw)
    except (ValueError, RecursionError):
        return default


def deep_json(text: str) -> str | None:
    """``text`` itself, when it is JSON that is nested too deeply to be read: it goes on as it was written."""
    text = text.strip()
    return text if too_deep(text) and JsonArguments(None, any_value=True).whole(text) == text else None


def _as_json(word: str, cut: bool) -> str:
    if word in _PYTHON:
        return _PYTHON[word]
    if word in ("true", "false", "null") or _NUMBER.fullmatch(word):
        return word
    for whole in ("true", "false", "null") if cut else ():
        if whole.startswith(word):
            return whole
    number = _NUMBER_CUT.match(word) if cut else None
    return "".join(number.groups()) if number else json.dumps(word, ensure_ascii=False)
