"""Where the special tokens of a delta stand in its text, when the tokens do not decode to that text one by one."""

from __future__ import annotations

from collections.abc import Sequence


def of_markers(parts: Sequence[tuple[str, bool]], text: str) -> list[int] | None:
    """The place of each special token in ``text``; None when the text does not show them all.

    ``parts`` are what the delta's tokens decode to: (text, whether it is a special token). Their ordinary texts need
    not be those of ``text`` character by character, but they mention the markers as often as it does. Mentions are
    counted from the end, since ``text`` may begin with more than the parts tell.
    """
    decoded = "".join(part for part, _ in parts)
    markers = {part for part, special in parts if special}
    meant, shown = ({part: _FromRight(where, part) for part in markers} for where in (decoded, text))
    found: list[int] = []
    end, behind = len(text), len(decoded)
    for part, special in reversed(parts):
        behind -= len(part)
        if not special:
            continue
        at = shown[part].place(meant[part].count(behind + len(part)))
        if at < 0 or at + len(part) > end:
            return None
        found.append(at)
        end = at
    return found[::-1] or None


class _FromRight:
    """Where ``part`` is found in ``text`` from the right, as ``rfind`` goes; the text is looked at once."""

    __slots__ = ("_counted", "_found", "_part", "_text")

    def __init__(self, text: str, part: str) -> None:
        self._text, self._part = text, part
        self._found: list[int] = []
        self._counted = 0

    def place(self, number: int) -> int:
        """The place of the ``number``-th from the right, from 0 on; -1 when there are fewer."""
        found = self._found
        while len(found) <= number and (not found or found[-1] >= 0):
            found.append(self._text.rfind(self._part, 0, found[-1] if found else len(self._text)))
        return found[number] if number < len(found) else -1

    def count(self, low: int) -> int:
        """How many are at ``low`` or behind it; ``low`` gets smaller from call to call."""
        while self.place(self._counted) >= low:
            self._counted += 1
        return self._counted
