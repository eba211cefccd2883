"""DeepSeek's DSML markup, as its templates ask for it and as its models write it."""

from __future__ import annotations

BAR = "｜DSML｜"
"""What every marker begins with, behind ``<`` or ``</``; for most models one token."""

WRAPPERS = ("tool_calls", "function_calls", "calls", "toolcalls", "tool_call", "toolcall", "function_call", "tool")
"""What a block of calls is called: in the templates of V4, V3.2 and V4.1, and then what models write instead."""


def opener(name: str, gap: str = "") -> str:
    """The opening tag without attributes; ``gap`` is the blank that V4.1 puts in front of names."""
    return f"<{BAR}{gap}{name}>"


def closer(name: str, gap: str = "") -> str:
    return f"</{BAR}{gap}{name}>"
