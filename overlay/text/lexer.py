"""How the markers of each state of a format are found in text."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from typing import NamedTuple

from engine_overlay.text.formats import Body, Format
from engine_overlay.text.grammar import Role


class Lexer(NamedTuple):
    """How the markers of one state are found: ``first`` are the characters that they begin with."""

    pattern: re.Pattern[str] | None
    markers: tuple[str, ...]
    first: frozenset[str]

    def unfinished(self, text: str, at: int) -> int:
        """How many characters at the end of ``text[at:]`` may still become a marker."""
        size = len(text) - at
        best = 0
        for marker in self.markers:
            for n in range(min(len(marker) - 1, size), best, -1):
                if text.endswith(marker[:n]):
                    best = n
                    break
        return best

    def may_grow(self, marker: str) -> bool:
        """Whether a longer marker begins with this one."""
        return any(len(m) > len(marker) and m.startswith(marker) for m in self.markers)


@functools.cache
def lexers(form: Format) -> Mapping[Role, Lexer]:
    """The lexer of each state."""
    made = {}
    moves = form.grammar.moves
    for role in Role:
        found = [m for (of, m), to in moves.items() if of is role and _is_looked_for(form, role, m, to)]
        if role is Role.ARGS and form.grammar.value_closers:
            # What stands behind a closed call may end one that was left open.
            found += [m for (of, m) in moves if of is Role.BETWEEN and (role, m) not in moves]
        longest_first = sorted(found, key=lambda m: (-len(m), m))
        pattern = re.compile("|".join(map(re.escape, longest_first))) if found else None
        made[role] = Lexer(pattern, tuple(longest_first), frozenset(m[0] for m in found))
    return made


def _is_looked_for(form: Format, role: Role, marker: str, to: Role) -> bool:
    # The tags of single arguments are the argument stream's own business.
    return not (role is Role.ARGS and to is Role.ARGS and form.calls and form.calls.body is Body.MARKUP)


def without_aborted(ahead: str, marker: str) -> str:
    """``<tool_`` and then the real ``<tool_call>``: the model began to spell it, and thought better of it."""
    for size in range(min(len(marker), len(ahead)), 1, -1):
        if ahead.endswith(marker[:size]):
            return ahead[: len(ahead) - size]
    return ahead
