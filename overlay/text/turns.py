"""Which part of a prompt belongs to the answer that follows it."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence

TAIL = 64
"""Ids at the end of a prompt in which the header of the answer must stand."""

_HEADER = re.compile(r"(?:\A|[\W_])(?:assistant|model|ai|bot)(?:\W|end_header_id|end_of_role)*\Z", re.IGNORECASE)


Decode = Callable[[list[int]], str]
"""Token ids -> text."""


def behind_last_end(ids: Sequence[int], ends: Collection[tuple[int, ...]], decode: Decode) -> list[int] | None:
    """The ids behind the last end marker of a prompt, if the header of an answer is the last thing there.

    ``ends`` are the end markers, each as the ids that spell it. None when there is no end marker, or when what
    follows it is no header: white space, or an answer that is to be continued.
    """
    tail = _behind(ids, ends)
    return tail if tail and _HEADER.search(decode(tail[-TAIL:])) else None


def closes(ids: Sequence[int], ends: Collection[tuple[int, ...]], decode: Decode) -> bool:
    """Whether a prompt ends reasoning itself: there is an end marker in it, and no header of an answer behind it."""
    tail = _behind(ids, ends)
    return tail is not None and not _HEADER.search(decode(tail[-TAIL:]) if tail else "")


def opens(ids: Sequence[int], start: int | None, end: int | None) -> bool:
    """Whether the last marker of reasoning in a prompt is its start; ``start`` and ``end`` are their ids."""
    for token in reversed(ids):
        if token == start or token == end:
            return token == start
    return False


def _behind(ids: Sequence[int], ends: Collection[tuple[int, ...]]) -> list[int] | None:
    behind = -1
    for end in ends:
        size = len(end)
        for at in range(len(ids) - size, -1, -1):
            if tuple(ids[at : at + size]) == end:
                behind = max(behind, at + size)
                break
    return None if behind < 0 else list(ids[behind:])
