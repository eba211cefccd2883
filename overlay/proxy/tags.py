"""The tags that leak, and what is left of them when a parser cut them in the wrong place."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

SHORTEST = 4
"""Characters of the shortest piece of a tag that is taken for one: ``ink>``, ``<too``."""

NAME = re.compile(r"[\w.:-]{2,32}")
"""A tag's name, without its brackets."""


@dataclass(frozen=True, slots=True)
class Tags:
    """Names of the tags around thoughts and around calls, and the tables made of them.

    A *fragment* is a whole tag, the last part of one (``hink>``), or either behind the first part of another
    (``<th<think>``, ``<thinink>``), as engines send them for requests with stop strings. ``beginnings`` are all texts
    that can still become one; ``cut`` are the first parts of a whole tag that are long enough to be no accident.
    """

    thoughts: tuple[str, ...] = ("think",)
    calls: tuple[str, ...] = ("tool_call",)
    whole: frozenset[str] = field(init=False)
    _form: re.Pattern[str] = field(init=False)
    _first: frozenset[str] = field(init=False)
    thought: re.Pattern[str] = field(init=False)
    beginnings: frozenset[str] = field(init=False)
    cut: frozenset[str] = field(init=False)
    longest: int = field(init=False)

    def __post_init__(self) -> None:
        whole = {form for name in (*self.thoughts, *self.calls) for form in (f"<{name}>", f"</{name}>")}
        # Every form ends with its only ">", so none begins with another, and the order in the pattern is free.
        forms = whole | {tag[at:] for tag in whole for at in range(1, len(tag) - SHORTEST + 1)}
        thought = [form for name in self.thoughts for form in (f"<{name}>", f"</{name}>")]
        first = {tag[:size] for tag in whole for size in range(2, len(tag))}
        beginnings = {form[:size] for form in forms for size in range(1, len(form))}
        made = {
            "whole": frozenset(whole),
            "_first": frozenset(first),
            "_form": re.compile("|".join(map(re.escape, sorted(forms, key=lambda f: (-len(f), f))))),
            "thought": re.compile("|".join(map(re.escape, thought))),
            "beginnings": frozenset(beginnings | {a + b for a in first for b in beginnings}),
            "cut": frozenset(tag[:size] for tag in whole for size in range(SHORTEST, len(tag))),
            "longest": 2 * max(map(len, whole)),
        }
        for name, value in made.items():
            object.__setattr__(self, name, value)

    def match(self, text: str, at: int) -> int:
        """Where the fragment that begins at ``at`` ends; 0 when none does."""
        if found := self._form.match(text, at):
            return found.end()
        if text.startswith("<", at):
            for size in range(2, self.longest // 2):
                if text[at : at + size] in self._first and (found := self._form.match(text, at + size)):
                    return found.end()
        return 0

    def find(self, text: str, at: int) -> tuple[int, int, int] | None:
        """The first fragment from ``at`` on: where it begins, where its last tag begins, and where it ends."""
        found = self._form.search(text, at)
        if not found:
            return None
        start = found.start()
        for before in range(max(at, start - self.longest // 2), start):
            if text[before:start] in self._first:
                return before, start, found.end()
        return start, start, found.end()

    def closes(self, tag: str) -> bool:
        return tag.startswith("</")

    def is_thought(self, tag: str) -> bool:
        return tag.strip("</>") in self.thoughts

    def unfinished(self, text: str, start: int) -> int:
        """Where at the end of ``text``, not before ``start``, a form may have begun; the length of it when none has."""
        size = len(text)
        for at in range(max(start, size - self.longest + 1), size):
            if text[at:] in self.beginnings:
                return at
        return size


DEFAULT = Tags()
