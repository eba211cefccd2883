"""A call that a model writes as one JSON object with the tool's name and the arguments in it (Hermes)."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from engine_overlay.text.json_arguments import JsonArguments, loads
from engine_overlay.text.schema import Schema

SchemaOf = Callable[[str], "Schema | None"]
"""The schema of a tool's parameters, by its name."""

# A model may write Python for JSON: 'name'.
_KEY_TEXT = {'"': re.compile(r'[^"\\]+'), "'": re.compile(r"""[^'"\\]+""")}
_GUESSED_TEXT = re.compile(r"""[^'"\\\]}]+""")
_NOT_A_KEY = re.compile(r"""[^"'\]}]+""")
_BLANK = re.compile(r"\s+")


class JsonCall:
    """``{"name": ..., "arguments": {...}}``, in either order. Each character is looked at a bounded number of times.

    ``keys``: the names under which the arguments may stand.
    """

    def __init__(self, schema_of: SchemaOf, keys: tuple[str, ...] = ("arguments", "parameters")) -> None:
        self._schema_of, self._keys = schema_of, keys
        self._quote = ""  # of the key that is being read, or was read and waits for its colon
        self._key: list[str] = []
        self._gap: list[str] = []
        self._escaped = False
        self._guessed = False
        """Whether what opened the key may as well have closed a string."""
        self._key_closed = False
        self._value: JsonArguments | None = None
        self._early: str | None = None
        self._arguments: JsonArguments | None = None
        self._behind: list[str] = []
        self.name: str | None = None
        self.done = False

    @property
    def in_string(self) -> bool:
        return self._value is not None and self._value.in_string

    @property
    def json(self) -> str:
        return self._arguments.json if self._arguments is not None else ""

    @property
    def rest(self) -> str:
        """What came behind the call."""
        text = "".join(self._behind)
        self._behind = [text]
        return text

    def feed(self, raw: str) -> str:
        """The JSON of the arguments that ``raw`` adds; ``name`` is set as soon as it is known."""
        said, end = self.take(raw, 0)
        if end < len(raw):
            self._behind.append(raw[end:])
        return said

    def take(self, raw: str, at: int) -> tuple[str, int]:
        """(the JSON of the arguments that ``raw`` adds from ``at`` on, where in it the call ends)."""
        said: list[str] = []
        while at < len(raw) and not self.done:
            if self._value is None:
                at = self._between(raw, at)
                continue
            new, at = self._value.take(raw, at)
            if self._value is self._arguments:
                said.append(new)
            if self._value.done:
                said.append(self._member_ends())
        return "".join(said), at

    def finish(self) -> str:
        """The rest of the arguments; the empty object when there were none."""
        new = ""
        if self._value is not None:
            last = self._value.finish()
            new = (last if self._value is self._arguments else "") + self._member_ends()
        if self._arguments is None and self.name is not None:
            new += self._all_at_once(self._early or "")
        self.done = True
        return new

    # -- up to the value of the next member: each step returns where the next one starts

    def _between(self, text: str, at: int) -> int:
        if self._key_closed:
            return self._colon(text, at)
        if self._quote:
            return self._in_key(text, at)
        char = text[at]
        if char in "}]":
            self.done = True
        elif char in "\"'":
            self._quote = char
        else:
            # Nothing that JSON knows here: what follows may still be a member.
            return _NOT_A_KEY.match(text, at).end()
        return at + 1

    def _in_key(self, text: str, at: int) -> int:
        if self._escaped:
            self._escaped = False
            self._key.append(text[at])
            return at + 1
        found = (_GUESSED_TEXT if self._guessed else _KEY_TEXT[self._quote]).match(text, at)
        if found:
            self._key.append(found.group())
            return found.end()
        char = text[at]
        if char == self._quote:
            self._key_closed = True
        elif self._quote == '"' and not (self._guessed and char in "]}"):
            self._escaped = char == "\\"
            self._key.append(char)
        else:
            # An apostrophe, or the end of the object: not a key.
            self._no_key()
            return at
        return at + 1

    def _colon(self, text: str, at: int) -> int:
        blank = _BLANK.match(text, at)
        if blank:
            self._gap.append(blank.group())
            return blank.end()
        if text[at] == ":":
            self._member_begins()
            return at + 1
        if text[at] in "\"',]}":
            # A string that is no key.
            self._no_key()
        else:
            # What seemed to close a key may open one.
            self._no_key(self._quote, self._gap)
        return at

    def _no_key(self, quote: str = "", begun: Iterable[str] = ()) -> None:
        self._quote, self._key, self._gap = quote, list(begun), []
        self._key_closed, self._guessed = False, bool(quote)

    def _member_begins(self) -> None:
        written = "".join(self._key)
        if "\\" in written:
            written = loads(f'"{written}"', written)
        self._no_key()
        self._name_of_value = written
        if written in self._keys and self._arguments is None and self.name is not None:
            self._value = self._arguments = JsonArguments(self._schema_of(self.name))
        else:
            self._value = JsonArguments(None, any_value=True)

    def _member_ends(self) -> str:
        value, key = self._value, self._name_of_value
        value.finish()
        self._value = None
        if value is self._arguments:
            return ""
        if key == "name" and self.name is None:
            name = loads(value.json)
            self.name = name if isinstance(name, str) else None
            if self._early is not None and self.name is not None:
                return self._all_at_once(self._early)
        elif key in self._keys and self._arguments is None:
            self._early = value.json
        return ""

    def _all_at_once(self, arguments: str) -> str:
        self._arguments = JsonArguments(self._schema_of(self.name))
        return self._arguments.whole(arguments)
