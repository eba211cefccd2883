"""Calls that come as the JSON which guided decoding makes of ``tool_choice``, without any marker of the format.

``required`` gives a list of ``{"name": ..., "parameters": {...}}``, a named tool the bare object of its arguments.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import NamedTuple

from engine_overlay.text.json_arguments import JsonArguments
from engine_overlay.text.json_call import JsonCall, SchemaOf

_SEPARATORS = re.compile(r"[ \t\r\n,\[]*")


class Said(NamedTuple):
    """What a piece of JSON adds: a new call of ``name``, then ``arguments`` of the last call, then plain ``text``."""

    name: str | None = None
    arguments: str = ""
    text: str = ""


class GuidedCalls:
    """The JSON of one answer. ``named`` is the tool that the request names, None for ``required``.

    A call of a tool that is not in ``names`` is text.
    """

    def __init__(self, names: Collection[str], named: str | None, schema_of: SchemaOf) -> None:
        self._names, self._named, self._schema_of = names, named, schema_of
        self._call: JsonCall | None = None
        self._raw: list[str] = []
        self._told = False
        self._bare: JsonArguments | None = None
        self._over = False
        self._said = False

    def feed(self, raw: str, *, last: bool = False) -> list[Said]:
        """What ``raw`` adds; with ``last`` all that is open is closed."""
        if self._named is not None:
            return self._feed_bare(raw, last)
        said: list[Said] = []
        at = 0
        while at < len(raw):
            if self._over:
                text = raw[at:] if self._said else raw[at:].lstrip()
                if text:
                    said.append(Said(text=text))
                    self._said = True
                break
            if self._call is None:
                at = self._between(raw, at)
                continue
            start = at
            arguments, at = self._call.take(raw, at)
            if not self._told:
                self._raw.append(raw[start:at])
            said += self._tell(arguments)
            if self._call.done:
                said += self._end()
        if last and self._call is not None:
            said += self._end()
        return said

    def _feed_bare(self, raw: str, last: bool) -> list[Said]:
        said: list[Said] = []
        if self._bare is None:
            self._bare = JsonArguments(self._schema_of(self._named))
            said.append(Said(name=self._named))
        arguments = self._bare.feed(raw)
        if last:
            arguments += self._bare.finish()
        return [*said, Said(arguments=arguments)] if arguments else said

    def _between(self, text: str, at: int) -> int:
        """Skips what stands between two calls; returns where the next call begins, or what follows the last one."""
        at = _SEPARATORS.match(text, at).end()
        if text.startswith("{", at):
            self._call, self._raw, self._told = JsonCall(self._schema_of), [], False
        elif text.startswith("]", at):
            self._over = True
            return at + 1
        elif at < len(text):
            self._over = True
        return at

    def _tell(self, arguments: str) -> list[Said]:
        call = self._call
        if call is None or call.name not in self._names:
            return []
        said = [] if self._told else [Said(name=call.name)]
        self._told, self._raw = True, []
        return [*said, Said(arguments=arguments)] if arguments else said

    def _end(self) -> list[Said]:
        call = self._call
        said = self._tell(call.finish()) if call is not None else []
        if not self._told and self._raw:
            said = [Said(text="".join(self._raw))]
        self._call, self._raw = None, []
        return said
