"""A call that a model writes as one JSON object with the tool's name and the arguments in it (Hermes)."""

from __future__ import annotations

import json
import re
from collections.abc import Callable

from engine_overlay.text.json_arguments import JsonArguments, loads
from engine_overlay.text.schema import Schema

SchemaOf = Callable[[str], "Schema | None"]
"""The schema of a tool's parameters, by its name."""


class JsonCall:
    """``{"name": ..., "arguments": {...}}``, in either order.

    ``keys``: the names under which the arguments may stand.
    """

    def __init__(self, schema_of: SchemaOf, keys: tuple[str, ...] = ("arguments", "parameters")) -> None:
        self._schema_of, self._keys = schema_of, keys
        self._buffer = ""
        self._key: str | None = None
        self._value: JsonArguments | None = None
        self._early: str | None = None
        self._arguments: JsonArguments | None = None
        self.name: str | None = None
        self.done = False
        self.rest = ""

    @property
    def in_string(self) -> bool:
        return self._value is not None and self._value.in_string

    @property
    def json(self) -> str:
        return self._arguments.json if self._arguments is not None else ""

    def feed(self, raw: str) -> str:
        """The JSON of the arguments that ``raw`` adds; ``name`` is set as soon as it is known."""
        if self.done:
            self.rest += raw
            return ""
        new = ""
        self._buffer += raw
        while not self.done:
            if self._value is None and not self._next_member():
                break
            piece, self._buffer = self._buffer, ""
            said = self._value.feed(piece)
            new += self._take(said)
            if not self._value.done:
                break
            new += self._member_ends()
        return new

    def finish(self) -> str:
        """The rest of the arguments; the empty object when there were none."""
        new = ""
        if self._value is not None:
            new = self._take(self._value.finish()) + self._member_ends()
        if self._arguments is None and self.name is not None:
            self._arguments = JsonArguments(self._schema_of(self.name))
            new += self._arguments.feed(self._early or "") + self._arguments.finish()
        self.done = True
        return new

    def _next_member(self) -> bool:
        """Reads up to the value of the next member; False when more text is needed."""
        text = self._buffer
        at = 0
        while at < len(text) and (text[at].isspace() or text[at] in ",{["):
            at += 1
        if at < len(text) and text[at] in "}]":
            self.done, self.rest, self._buffer = True, text[at + 1 :], ""
            return False
        found = _KEY.match(text, at)
        if found is None:
            if at < len(text) and not _KEY_BEGUN.match(text, at):
                # Nothing that JSON knows here: what follows may still be a member.
                self._buffer = text[at + 1 :]
                return self._next_member()
            return False
        self._buffer = text[found.end() :]
        key = found.group(1) or found.group(2) or ""
        self._key = json.loads(f'"{key}"') if "\\" in key else key
        arguments = self._key in self._keys and self._arguments is None
        if arguments and self.name is not None:
            self._value = self._arguments = JsonArguments(self._schema_of(self.name))
        else:
            self._value = JsonArguments(None, any_value=True)
        return True

    def _take(self, said: str) -> str:
        return said if self._value is self._arguments else ""

    def _member_ends(self) -> str:
        value, key = self._value, self._key
        value.finish()
        self._value, self._buffer = None, value.rest + self._buffer
        if value is self._arguments:
            return ""
        if key == "name" and self.name is None:
            name = loads(value.json)
            self.name = name if isinstance(name, str) else None
            if self._early is not None and self.name is not None:
                self._arguments = JsonArguments(self._schema_of(self.name))
                return self._arguments.feed(self._early) + self._arguments.finish()
        elif key in self._keys and self._arguments is None:
            self._early = value.json
        return ""


# A model may write Python for JSON: 'name'.
_KEY = re.compile(r"""(?:"((?:[^"\\]|\\.)*)"|'([^'\\"]*)')\s*:""")
_KEY_BEGUN = re.compile(r"""(?:"(?:(?:[^"\\]|\\.)*\\?|(?:[^"\\]|\\.)*"\s*)|'(?:[^'\\"]*|[^'\\"]*'\s*))\Z""")
