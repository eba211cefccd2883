"""Calls that come as the JSON which guided decoding makes of ``tool_choice``, without any marker of the format.

``required`` gives a list of ``{"name": ..., "parameters": {...}}``, a named tool the bare object of its arguments.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from engine_overlay.text.json_arguments import JsonArguments
from engine_overlay.text.json_call import JsonCall, SchemaOf


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
        self._raw = ""
        self._told = False
        self._bare: JsonArguments | None = None
        self._over = False
        self._said = False

    def feed(self, raw: str, *, last: bool = False) -> list[Said]:
        """What ``raw`` adds; with ``last`` all that is open is closed."""
        if self._named is not None:
            return self._feed_bare(raw, last)
        said: list[Said] = []
        rest = raw
        while rest:
            if self._over:
                rest = rest if self._said else rest.lstrip()
                self._said = self._said or bool(rest)
                said += [Said(text=rest)] if rest else []
                break
            if self._call is None:
                rest = self._between(rest)
                if self._call is None:
                    continue
            self._raw += "" if self._told else rest
            arguments = self._call.feed(rest)
            rest = self._call.rest
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

    def _between(self, text: str) -> str:
        """Skips what stands between two calls; returns the rest, from the call on."""
        rest = text.lstrip(" \t\r\n,[")
        if rest.startswith("{"):
            self._call, self._raw, self._told = JsonCall(self._schema_of), "", False
        elif rest.startswith("]"):
            self._over = True
            return rest[1:]
        elif rest:
            self._over = True
        return rest

    def _tell(self, arguments: str) -> list[Said]:
        call = self._call
        if call is None or call.name not in self._names:
            return []
        said = [] if self._told else [Said(name=call.name)]
        self._told, self._raw = True, ""
        return [*said, Said(arguments=arguments)] if arguments else said

    def _end(self) -> list[Said]:
        call = self._call
        said = self._tell(call.finish()) if call is not None else []
        if not self._told and self._raw:
            text = self._raw
            if call is not None and call.rest:
                text = text.removesuffix(call.rest)
            said = [Said(text=text)]
        self._call, self._raw = None, ""
        return said
