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

AHEAD = 2
"""Characters after a marker that may be asked for."""

_HEAD = 256  # of a line, in which a fence is looked for
_TAIL = 4  # in front of a marker, that say whether a sentence or a quote goes on

_PAIRS = {"`": "`", '"': '"', "'": "'", "\u201c": "\u201d", "\u2018": "\u2019", "\u00ab": "\u00bb"}
_FENCE = re.compile(r"^[ \t]*(?:>[ \t]*)*(```+|~~~+)[ \t]*(.*)$", re.MULTILINE)
_TICKS = re.compile(r"`+")
_STRING_ENDS = re.compile(r'(?<!\\)(?:\\\\)*"')
_MID_SENTENCE = re.compile(r"[^\W_][,;]? \Z")


class Said:
    """What a block has said so far, as far as it decides whether the marker that comes next is quoted.

    Text is fed as it comes, and read once: a few characters are all that is kept of it. ``whole`` says that it begins
    where the block does, so that bare code fences can be counted.
    """

    __slots__ = ("_fence", "_head", "_info", "_quotes", "_rest", "_runs", "_tail", "_tick", "_whole")

    def __init__(self, whole: bool = True) -> None:
        self._whole = whole
        self._fence = ""
        self._new_line()

    def copy(self) -> Said:
        """The same text, to look at what may follow and forget it again."""
        other = Said.__new__(Said)
        for name in Said.__slots__:
            setattr(other, name, getattr(self, name))
        return other

    def feed(self, text: str) -> Said:
        """Go on with ``text``; returns itself."""
        first = text.find("\n")
        if first >= 0:
            self._go_on(text[:first])
            if self._head and (found := _FENCE.match(self._head)):
                info = found.group(2).strip() or self._info
                self._fence_line(found.group(1)[0], bool(info), "`" in found.group(2) or "`" in self._rest)
            last = text.rfind("\n")
            if text.find("```", first, last) >= 0 or text.find("~~~", first, last) >= 0:
                for found in _FENCE.finditer(text, first + 1, last):
                    info = found.group(2).strip()
                    self._fence_line(found.group(1)[0], bool(info), "`" in info)
            self._new_line()
            text = text[last + 1 :]
        self._go_on(text)
        return self

    def quotes(self, after: str | None) -> bool | None:
        """Whether a marker that comes next, and is followed by ``after``, is a mention; see :func:`is_quoted`."""
        if self._fence:
            return True
        closers = self._closers()
        if not closers and not _MID_SENTENCE.search(self._tail):
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
        if after[0] == " " and _MID_SENTENCE.search(self._tail):
            # "if I print </think> then ...": a word and a space on both sides, and the sentence goes on.
            return None if len(after) == 1 else after[1].islower()
        return False

    def is_code(self) -> bool:
        """Whether what comes next stands in a code fence or in inline code."""
        return bool(self._fence) or self._runs % 2 == 1

    def _closers(self) -> set[str]:
        """The closing characters that would make a quote of what stands before the marker on its line."""
        closers = {close for opening, close in _PAIRS.items() if self._tail.endswith(opening)}
        if self._runs % 2:
            closers.add("`")
        if self._quotes % 2:
            closers.add('"')
        # An apostrophe looks like a quote, so an open single quote further back says nothing.
        return closers

    def _new_line(self) -> None:
        self._head = self._tail = self._rest = ""
        self._tick = self._info = False
        self._runs = self._quotes = 0

    def _go_on(self, text: str) -> None:
        if not text:
            return
        room = _HEAD - len(self._head)
        if room > 0:
            self._head += text[:room]
        if len(text) > room:
            more = text[max(room, 0) :]
            self._info = self._info or not more.isspace()
            self._rest = "`" if self._rest or "`" in more else ""
        if "`" in text:
            # A run of backticks may have been cut.
            self._runs += len(_TICKS.findall(text)) - (self._tick and text[0] == "`")
        self._tick = text[-1] == "`"
        self._quotes += text.count('"')
        self._tail = (self._tail + text[-_TAIL:])[-_TAIL:]

    def _fence_line(self, kind: str, info: bool, ticks: bool) -> None:
        """A fence with an info string always opens; a bare one closes what is open.

        Else it opens, but in a text that was cut off at its front it may as well close one that is out of sight, and so
        says nothing.
        """
        if self._fence:
            if kind == self._fence and not info:
                self._fence = ""
        elif not ticks and (info or self._whole):
            self._fence = kind


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
    return Said(len(before) < CONTEXT if whole is None else whole).feed(before).quotes(after)


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
    return Said(whole).feed(before).is_code()


def in_json_string(before: str, *, whole: bool) -> bool:
    """Whether ``before``, the beginning of an answer in JSON, ends inside of a string.

    Only of a text that is ``whole``: one that was cut off at its front may begin anywhere.
    """
    if not whole or before.lstrip()[:1] not in ("{", "["):
        return False
    return len(_STRING_ENDS.findall(before)) % 2 == 1
