"""How deeply JSON is nested: what is nested too deeply for a recursive reader is left as the model wrote it.

Readers and writers of JSON call themselves for each level and give up at a depth that depends on the interpreter and
on who called them. Asked here first, a text is treated the same however it came.
"""

from __future__ import annotations

import re

MAX_NESTING = 200
"""Levels that are read. Readers in use stop at 128 (serde) to about 1,000 (Python)."""

_BRACKET = re.compile(r'[\[{]|[\]}]|"[^"\\]*(?:\\.[^"\\]*)*"?', re.DOTALL)
"""A bracket, or a string, in which brackets do not count; one that is not closed reaches to the end."""


def too_deep(text: str) -> bool:
    """Whether ``text`` has more than :data:`MAX_NESTING` brackets open at once."""
    if text.count("[") + text.count("{") <= MAX_NESTING:
        return False
    depth = 0
    for found in _BRACKET.finditer(text):
        first = text[found.start()]
        if first in "[{":
            depth += 1
            if depth > MAX_NESTING:
                return True
        elif first != '"':
            depth -= 1
    return False
