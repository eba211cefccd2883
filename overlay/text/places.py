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
    found: list[int] = []
    end, behind = len(text), len(decoded)
    for part, special in reversed(parts):
        behind -= len(part)
        if not special:
            continue
        mentions = _occurrences(decoded[behind + len(part) :], part)
        at = len(text)
        for _ in range(mentions + 1):
            at = text.rfind(part, 0, at)
            if at < 0:
                return None
        if at + len(part) > end:
            return None
        found.append(at)
        end = at
    return found[::-1] or None


def _occurrences(text: str, part: str) -> int:
    """How often ``part`` is found in ``text`` from the right, as ``rfind`` goes."""
    count, at = 0, text.rfind(part)
    while at >= 0:
        count += 1
        at = text.rfind(part, 0, at)
    return count
