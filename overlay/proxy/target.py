"""The path of a request, in the one form that every server reads alike.

A path with dot segments means one thing to who checks it and another to who opens it. So they are resolved here, also
percent-encoded, never above the root; a path that hides one in another way is refused.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from urllib.parse import unquote_to_bytes

PASSES = 4
"""How often an encoding may be nested in another."""

_DOT = re.compile(rb"%2e", re.IGNORECASE)
_CUT = re.compile(rb"[/\\]")


def clean(path: bytes) -> bytes | None:
    """The path without dot segments; None for one that is to be refused."""
    if not path.startswith(b"/"):
        return None
    kept: list[bytes] = []
    parts = path[1:].split(b"/")
    for number, part in enumerate(parts, 1):
        plain = _DOT.sub(b".", part)
        if plain in (b".", b".."):
            if plain == b".." and kept:
                kept.pop()
            if number == len(parts):
                kept.append(b"")
        elif _hides(part):
            return None
        else:
            kept.append(part)
    return b"/" + b"/".join(kept)


def allowed(path: bytes, prefixes: Sequence[str]) -> bool:
    """Whether a clean path is one of these or below one; without any, all are."""
    plain = unquote_to_bytes(path)
    folders = [prefix.rstrip("/").encode() for prefix in prefixes]
    return not folders or any(plain == folder or plain.startswith(folder + b"/") for folder in folders)


def _hides(part: bytes) -> bool:
    """Whether a segment becomes a dot segment for a server that decodes it again, or cuts it at other signs."""
    if not any(sign in part for sign in (b"%", b"\\", b";")):
        return False
    for _ in range(PASSES):
        if any(piece.partition(b";")[0] in (b".", b"..") for piece in _CUT.split(part)):
            return True
        decoded = unquote_to_bytes(part)
        if decoded == part:
            return False
        part = decoded
    return True
