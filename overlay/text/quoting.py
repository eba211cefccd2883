"""Whether a marker that is spelled out in a model's text is being quoted or talked about.

A model that reasons about its own format writes its markers as ordinary text: between quotes, in inline code,
in a code fence, or in the middle of a sentence. Such a mention ends nothing. The decision looks at the text
around the marker only, so it is the same however the text was cut into tokens and deltas.

Errors are not equally dear: a mention taken for real cuts the reasoning early, but a real end taken for a
mention hides the whole answer. So only clear signs count, and the absence of a sign means real.
"""

from __future__ import annotations

import re

CONTEXT = 200
"""Characters of text before a marker that are enough for the decision (more is better for code fences)."""

_PAIRS = {"`": "`", '"': '"', "'": "'", "\u201c": "\u201d", "\u2018": "\u2019", "\u00ab": "\u00bb"}
_FENCE = re.compile(r"^[ \t]*(?:>[ \t]*)*(```+|~~~+)[ \t]*(.*)$", re.MULTILINE)
_TICKS = re.compile(r"`+")
_STRING_ENDS = re.compile(r'(?<!\\)(?:\\\\)*"')
_MID_SENTENCE = re.compile(r"[^\W_][,;]? \Z")


def is_quoted(before: str, after: str | None, *, whole: bool | None = None) -> bool | None:
    """Whether the marker between ``before`` and ``after`` is a mention and not real.

    ``before`` is the text ahead of the marker in the same block, at least its last :data:`CONTEXT`
    characters; ``after`` the text that has followed so far: ``""`` for nothing yet, ``None`` when the stream
    ends here.
    ``whole`` says that ``before`` reaches back to the start of the block, so that bare code fences can be
    counted; by default that is assumed of a text shorter than :data:`CONTEXT`.
    Returns True for a mention, False for a real marker, None when one more character of ``after`` decides it
    (at most two are ever asked for).
    """
    if _in_fence(before, len(before) < CONTEXT if whole is None else whole):
        return True
    line = before[before.rfind("\n") + 1 :]
    closers = _open_quotes(line)
    if not closers and not _MID_SENTENCE.search(line):
        return False
    if after is None:
        return False
    if after == "":
        return None
    if after[0] in closers:
        return True
    if "`" in closers and after[0] != "\n":
        # Inline code that was opened on this line and is still open: `before </think> after`.
        return True
    if after[0] == " " and _MID_SENTENCE.search(line):
        # "if I print </think> then ...": a word and a space on both sides, and the sentence goes on.
        return None if len(after) == 1 else after[1].islower()
    return False


def is_mentioned(before: str, after: str, *, whole: bool, final: bool) -> bool | None:
    """Whether an opener of a call that no call follows is talked about, rather than a call gone wrong.

    Beside what :func:`is_quoted` knows: punctuation, or a blank and a word in lower case, goes on with the sentence.
    Arguments and result as for :func:`is_quoted`; None only without ``final``.
    """
    if not after:
        return is_quoted(before, "", whole=whole) is not False if final else None
    if after[0] in ",.;:!?)]}":
        return True
    if after[0] == " ":
        if len(after) == 1 and not final:
            return None
        if after[1:2].islower():
            return True
    quoted = is_quoted(before, after, whole=whole)
    return bool(quoted) if final else quoted


def is_example(before: str, *, whole: bool) -> bool:
    """Whether what follows ``before`` stands in a code fence or in inline code, as an example of a call does.

    Arguments as for :func:`is_quoted`.
    """
    if _in_fence(before, whole):
        return True
    return len(_TICKS.findall(before[before.rfind("\n") + 1 :])) % 2 == 1


def in_json_string(before: str, *, whole: bool) -> bool:
    """Whether ``before``, the beginning of an answer in JSON, ends inside of a string.

    Only of a text that is ``whole``: one that was cut off at its front may begin anywhere.
    """
    if not whole or before.lstrip()[:1] not in ("{", "["):
        return False
    return len(_STRING_ENDS.findall(before)) % 2 == 1


def _open_quotes(line: str) -> set[str]:
    """The closing characters that would make a quote of what stands before the marker on its line."""
    closers = {close for opening, close in _PAIRS.items() if line.endswith(opening)}
    if len(_TICKS.findall(line)) % 2:
        closers.add("`")
    if line.count('"') % 2:
        closers.add('"')
    # An apostrophe looks like a quote, so an open single quote further back says nothing.
    return closers


def _in_fence(before: str, whole: bool) -> bool:
    """Whether ``before`` ends inside a code fence.

    A fence with an info string (```` ```python ````) always opens; a bare one closes what is open. Else it
    opens, but in a text that was cut off at its front it may as well close one that is out of sight, and so
    says nothing.
    """
    if "```" not in before and "~~~" not in before:
        return False
    kind = ""
    # The marker's own line is no fence: a fence needs its line end.
    for match in _FENCE.finditer(before[: before.rfind("\n") + 1]):
        ticks, info = match.group(1)[0], match.group(2).strip()
        if kind:
            if ticks == kind and not info:
                kind = ""
        elif "`" not in info and (info or whole):
            kind = ticks
    return bool(kind)
