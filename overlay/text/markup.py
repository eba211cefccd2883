"""How the formats write the arguments of a call as markup: one small record a format, read from the engine's own.

A format is found by its markers, and its way of trimming by asking the engine's own converter for a sample, so that
a release which trims otherwise gets what it gives, and an unknown converter is left alone.
"""

from __future__ import annotations

import enum
import json
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

from engine_overlay.text.dsml import BAR, closer

MAX_HEAD = 256
"""Characters in which the opening tag of an argument must end."""

_SPACE = {" ": r"\s{0,16}", " +": r"\s{1,16}"}


class Trim(enum.Enum):
    """What of the text between the tags is the template's own."""

    NOTHING = "nothing"
    NEWLINE = "one newline on each side"
    EDGES = "one newline on each side of a value that begins with one, else all white space around it"


class Marker:
    """A marker as tokens: literal text, ``" "`` for optional and ``" +"`` for needed white space.

    ``whole`` is the regular expression of the marker, ``begun`` that of any beginning of it, but for the empty one.
    """

    __slots__ = ("_begun", "_whole", "begun_pattern", "first", "whole_pattern")

    def __init__(self, *tokens: str) -> None:
        letters = [part for t in tokens for part in ([_SPACE[t]] if t in _SPACE else map(re.escape, t))]
        rest = ""
        for part in reversed(letters[1:]):
            rest = f"(?:{part}{rest})?"
        self.whole_pattern = "".join(letters)
        self.begun_pattern = f"{letters[0]}{rest}"
        self._whole = re.compile(self.whole_pattern)
        self._begun = re.compile(rf"{self.begun_pattern}\Z")
        self.first = tokens[0][0]

    def end(self, text: str, at: int) -> int:
        """Where the marker that starts at ``at`` ends; -1 when none does."""
        found = self._whole.match(text, at)
        return found.end() if found else -1

    def begun(self, text: str, at: int) -> bool:
        """Whether ``text`` ends inside of what may become this marker."""
        return self._begun.match(text, at) is not None


@dataclass(frozen=True, slots=True)
class Syntax:
    """The markup of one format.

    ``opener`` starts an argument's opening tag, ``head`` matches the rest of it up to the value, with the groups
    ``name`` and, where the format says whether the value is a string, ``string``. ``head_end`` is the last part of
    the tag. ``wrappers``: names under which the format's models wrap all arguments in one object.
    """

    opener: Marker
    closer: Marker
    head: re.Pattern[str]
    head_end: str
    head_lines: bool
    trim: Trim
    says_string: bool
    wrappers: tuple[str, ...]
    sample: str
    """An argument ``a`` with the value ``%s``, written as the format's template does."""
    in_value: re.Pattern[str]
    """Finds what may not be text in a value: a ``closer``, an ``opener``, or a beginning of one at the end."""


def _syntax(opener: Marker, closer: Marker, head: str, sample: str, **more: object) -> Syntax:
    fields = {"head_end": ">", "head_lines": False, "trim": Trim.NOTHING, "says_string": False, "wrappers": ()}
    # An answer may be cut off in the middle of a character of the marker.
    begun = rf"(?:{closer.begun_pattern}|{opener.begun_pattern})\ufffd?\Z"
    found = re.compile(f"(?P<closer>{closer.whole_pattern})|(?P<opener>{opener.whole_pattern})|{begun}")
    return Syntax(opener, closer, re.compile(head), sample=sample, in_value=found, **(fields | more))


def _dsml(start: str, close: str) -> Syntax:
    return _syntax(
        Marker(start, " +", 'name="'),
        Marker(close),
        r'(?P<name>[^"]+)"(?:\s+string="(?P<string>[^"]*)")?\s*>',
        f'{start} name="a" string="true">%s{close}',
        says_string=True,
        wrappers=("arguments", "input"),
    )


EQUALS = _syntax(
    Marker("<", " ", "parameter", " ", "="),
    Marker("<", " ", "/", " ", "parameter", " ", ">"),
    r"\s*(?P<name>[^<>\n]+)>",
    "<parameter=a>%s</parameter>",
)
NAMED = _syntax(
    Marker("<", " ", "parameter", " +", "name", " ", "="),
    Marker("<", " ", "/", " ", "parameter", " ", ">"),
    r"""\s*(?P<quote>["'])?(?P<name>(?(quote)(?:(?!(?P=quote))[^<\n])+|[^\s<>]+))(?(quote)(?P=quote))\s*>""",
    '<parameter name="a">%s</parameter>',
)
PAIRS = _syntax(
    Marker("<arg_key>"),
    Marker("</arg_value>"),
    r"(?P<name>[^<]+)</arg_key>\s*<arg_value>",
    "<arg_key>a</arg_key><arg_value>%s</arg_value>",
    head_end="<arg_value>",
    head_lines=True,
)
DSML = _dsml(f"<{BAR}parameter", closer("parameter"))

Converter = Callable[[str, bool], str]


def syntax_of(markers: Iterable[str], converter: Converter) -> Syntax | None:
    """The syntax that an engine's ``converter`` (raw text, partial) -> JSON reads, among ``markers`` of its format.

    None when it reads none of those known here, or does something else with the text than they do.
    """
    for syntax in _candidates(tuple(markers)):
        read = [_read(converter, syntax.sample % value) for value in _VALUES]
        if read == [value.strip() for value in _VALUES]:
            # Releases that strip all white space lose the indentation of code; later ones mended that.
            return replace(syntax, trim=Trim.EDGES)
        for trim in Trim:
            if read == [trimmed(value, trim) for value in _VALUES]:
                return replace(syntax, trim=trim)
    return None


_VALUES = ("  \n\n v\n\n  ", "\n\nv\n\n")


def _read(converter: Converter, sample: str) -> Any:
    """What the converter makes of the one argument of a sample; None when it does not read it."""
    try:
        read = json.loads(converter(sample, False))
    except (ValueError, TypeError, KeyError, AttributeError):
        return None
    return read["a"] if isinstance(read, dict) and read.keys() == {"a"} else None


def _candidates(markers: tuple[str, ...]) -> Iterable[Syntax]:
    yield from (EQUALS, NAMED, PAIRS)
    for close in markers:
        if close.startswith("</") and close.endswith("parameter>"):
            yield _dsml(f"<{close[2:-1]}", close)


def trimmed(text: str, trim: Trim) -> str:
    """``text`` without what the template put around it."""
    if trim is Trim.EDGES and not text.startswith("\n"):
        return text.strip()
    if trim is not Trim.NOTHING:
        return text.removeprefix("\n").removesuffix("\n")
    return text
