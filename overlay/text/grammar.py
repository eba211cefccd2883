"""The grammar of a model's output format, and whether a *spelled* marker is confirmed by what surrounds it.

A marker that arrives as its special token is real. One that arrives spelled, with ordinary tokens, is a candidate:
:func:`Grammar.judge` says whether the format's own grammar confirms it. Engine-neutral: an engine's parser
configuration is turned into a :class:`Grammar` by whoever uses it.

Precision comes before recall for calls, since a false call can run an action. Text that is looked at ahead of a
verdict is held back from the client, so every rule asks for a bounded number of characters: see :data:`MAX_GAP` and
:func:`Grammar.longest_hold`.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from engine_overlay.text.quoting import in_json_string, is_example, is_mentioned, is_quoted

MAX_GAP = 64
"""White space allowed between the parts of a call's opening, in characters."""

MAX_JSON_HEAD = 256
"""Characters within which a JSON body must show the name of its tool."""

MAX_BLOCK = 256
"""Characters within which a block that holds no call must be closed, to be a block and no text."""


class Source(enum.Enum):
    """How a marker came: spelled with ordinary tokens, as its special token, or in a way that is not known.

    Not known: text without token ids, and markers that have no token of their own.
    """

    SPELLED = "spelled"
    SPECIAL = "special"
    UNKNOWN = "unknown"


class AnyName(frozenset[str]):
    """Stands for "whatever tool": for openers that need only a well-formed head, not a declared name."""

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and bool(_NAME.fullmatch(name))


class Role(enum.Enum):
    """What a state of the format's machine means."""

    CONTENT = "content"
    REASONING = "reasoning"
    PREAMBLE = "preamble"
    NAME = "name"
    ARGS = "args"
    BETWEEN = "between"
    OTHER = "other"


TOOL = frozenset({Role.PREAMBLE, Role.NAME, Role.ARGS, Role.BETWEEN})

_HEAD = 1024  # characters that are enough for the head of a call, up to its first argument
_NAME = re.compile(r"[\w.:/-]{1,128}")
_NAME_HEAD = re.compile(r"[\w.:/-]{0,128}(\s{0,64})")
_JSON_NAME = re.compile(r"""(["'])name\1\s*:\s*(["'])([^"'\\]*)\2""")
_INDEX = re.compile(r"\A:\d*")


@dataclass(frozen=True, slots=True)
class Before:
    """What the block in which a candidate stands holds so far.

    ``text`` is its tail (or all of it, then ``whole``); ``blank`` says that it holds nothing but white space.
    ``json_open`` says that a JSON body is unfinished at this point (inside a string, or with open braces).
    """

    text: str = ""
    whole: bool = True
    blank: bool = True
    json_open: bool = False


@dataclass(frozen=True, slots=True)
class Grammar:
    """The machine of a format.

    ``moves``: (role, marker as spelled) -> the role it leads to. ``ends_reasoning``: the moves that end reasoning.
    ``value_closers``: what closes a value inside the arguments of a markup format, such as ``</parameter>``.
    ``json_args``: the arguments are one JSON value, not markup.
    """

    moves: Mapping[tuple[Role, str], Role]
    ends_reasoning: frozenset[tuple[Role, str]]
    value_closers: tuple[str, ...]
    json_args: bool
    _from: Mapping[Role, tuple[str, ...]] = field(init=False, compare=False)

    def __post_init__(self) -> None:
        by_role: dict[Role, list[str]] = {}
        for role, marker in self.moves:
            by_role.setdefault(role, []).append(marker)
        longest_first = {role: tuple(sorted(found, key=lambda m: (-len(m), m))) for role, found in by_role.items()}
        object.__setattr__(self, "_from", longest_first)

    @property
    def plain(self) -> bool:
        """Whether the head of a call is an opener and then the name, as the rules for heads assume.

        Not so where messages have headers (Inkling), or where more of the head follows the name (PLaMo 3).
        """
        after_name = {to for (role, _), to in self.moves.items() if role is Role.NAME}
        headers = any(Role.OTHER in (role, to) for (role, _), to in self.moves.items())
        openers = {m for (role, m), to in self.moves.items() if role not in TOOL and to in TOOL}
        again = {m for (role, m), to in self.moves.items() if (role, to) == (Role.NAME, Role.PREAMBLE)}
        return bool(openers) and not headers and Role.ARGS in after_name and again <= openers

    def judge(
        self,
        role: Role,
        marker: str,
        before: Before,
        after: str,
        names: Collection[str],
        *,
        final: bool,
        source: Source = Source.SPELLED,
    ) -> bool | None:
        """Whether ``marker`` in ``role`` is real: True, False, or None for "more text is needed".

        ``after`` is the text that has followed so far, markers included as spelled; with ``final`` nothing more can
        follow, and the answer is never None. ``names`` are the tools that the request declares.
        """
        to = self.moves.get((role, marker))
        if to is None:
            return False
        again = role is Role.ARGS and self.json_args
        if to in (Role.PREAMBLE, Role.NAME) or (to is Role.ARGS and (role not in TOOL or again)):
            if role is Role.ARGS and not self.closes(before):
                return False
            return self._opens(role, to, before, after, names, final, source)
        if role is Role.ARGS and to is not Role.ARGS and self._quotes_call(before):
            goes_on = self._value_goes_on(to, after, final, example=self._open_examples(before.text) > 0)
            if goes_on is not False:
                return None if goes_on is None else False
        if source is Source.SPECIAL and role is Role.CONTENT is to:
            # A second end of reasoning is no text, unless the answer quotes it.
            quoted = is_quoted(before.text, after if after or not final else None, whole=before.whole)
            return None if quoted is None else not quoted and not in_json_string(before.text, whole=before.whole)
        if source is Source.SPECIAL:
            return True
        if role in TOOL:
            if role is not Role.ARGS or to is Role.ARGS or self.closes(before):
                return True
            return self._cut_off(to, before, after, final)
        if self._is_closed_text(role, to, marker, before.text):
            return False
        ends = role is Role.REASONING and (to is not Role.REASONING or (role, marker) in self.ends_reasoning)
        if ends or source is Source.UNKNOWN:
            quoted = is_quoted(before.text, after if after or not final else None, whole=before.whole)
            return None if quoted is None else not quoted
        # An opener of reasoning, or a second end of it, counts only where nothing was said yet.
        return before.blank

    def closes(self, before: Before) -> bool:
        """Whether arguments may end here: never inside a value."""
        if self.json_args:
            return not before.json_open
        tail = before.text.rstrip()
        return not tail or tail.endswith(self.value_closers or ("}", ")", "]"))

    def ends_open_call(
        self, marker: str, before: Before, after: str, names: Collection[str], *, final: bool, source: Source
    ) -> bool | None:
        """Whether arguments end at a ``marker`` that the format has behind a closed call only: the call was left open.

        So it is behind a closed value, or a call without any, unless the value goes on; and for a closer in an open
        value where the output ends, or another call begins. Arguments and result as for :meth:`judge`.
        """
        to = self.moves.get((Role.BETWEEN, marker))
        if to is None or (Role.ARGS, marker) in self.moves or self.json_args or not self.value_closers:
            return False
        if to in (Role.PREAMBLE, Role.NAME):
            if not self.closes(before):
                return False
            return self.judge(Role.BETWEEN, marker, before, after, names, final=final, source=source)
        if self.closes(before):
            goes_on = self._value_goes_on(to, after, final)
            return None if goes_on is None else not goes_on
        return self._open_value_ends(before, after, final)

    def _open_value_ends(self, before: Before, after: str, final: bool) -> bool | None:
        """Whether a closer of the whole call ends a value that was never closed: at the end, or before another call."""
        rest = after.lstrip()
        if not rest:
            return True if final else None if len(after) <= MAX_GAP else False
        openers = () if self._quotes_call(before) else self._openers
        return True if rest.startswith(openers) else None if any(m.startswith(rest) for m in openers) else False

    @property
    def _openers(self) -> tuple[str, ...]:
        return tuple(m for m in self._from.get(Role.CONTENT, ()) if self.moves[Role.CONTENT, m] in TOOL)

    def _quotes_call(self, before: Before) -> bool:
        """Whether the arguments so far hold the opener of another call, as an example in a value does."""
        return bool(self.value_closers) and any(m in before.text for m in self._openers)

    def _open_examples(self, text: str) -> int:
        """How many calls a value shows, head and first argument, whose end it has not shown yet."""
        roles = (Role.CONTENT, Role.PREAMBLE)
        heads = [m for r in roles for m in self._from.get(r, ()) if self.moves[r, m] is Role.NAME]
        ends = [m for m in self._from.get(Role.ARGS, ()) if self.moves[Role.ARGS, m] not in (Role.NAME, Role.ARGS)]
        if not heads or not ends:
            return 0
        open_, pattern = 0, "|".join(map(re.escape, sorted({*heads, *ends}, key=len, reverse=True)))
        for found in re.finditer(pattern, text):
            if found[0] in ends:
                open_ = max(0, open_ - 1)
            elif self._opens_call(Role.NAME, text[(at := found.end()) : at + _HEAD], AnyName(), final=True, whole=True):
                open_ += 1
        return open_

    def _value_goes_on(self, role: Role, after: str, final: bool, *, example: bool = False) -> bool | None:
        """Whether a value goes on behind closers that end a call, which then are part of it.

        So it does where its closing tag follows, and behind an ``example`` of a call where anything else does.
        """
        at = 0
        while at < len(after):
            if after[at].isspace():
                at += 1
                continue
            rest = after[at:]
            if rest.startswith(self.value_closers):
                return True
            marker = next((m for m in self._from.get(role, ()) if rest.startswith(m)), None)
            if marker is None or self.moves[role, marker] in (Role.NAME, Role.ARGS, Role.PREAMBLE):
                known = (*self.value_closers, *self._from.get(role, ()))
                return None if not final and any(m.startswith(rest) for m in known) else example
            role, at = self.moves[role, marker], at + len(marker)
        return None if not final and len(after) <= 2 * MAX_GAP else False

    def _is_closed_text(self, role: Role, to: Role, marker: str, before: str) -> bool:
        """Whether a closer that is no more than dropped closes a tag that was taken for text, and so is text too."""
        if (role, to) != (Role.CONTENT, Role.CONTENT) or (Role.REASONING, marker) in self.ends_reasoning:
            return False
        if not marker.startswith("</"):
            return False
        depth = 0
        for tag in re.finditer(rf"<(/?){re.escape(marker[2:-1])}[\s>]", before):
            depth = max(0, depth - 1) if tag[1] else depth + 1
        return depth > 0

    def _cut_off(self, to: Role, before: Before, after: str, final: bool) -> bool | None:
        """An end of the call inside a value that was never closed: real before what may follow a call, or the end."""
        if self.json_args:
            return False
        if to is not Role.BETWEEN:
            return self._open_value_ends(before, after, final) if self.value_closers else False
        rest = after.lstrip()
        if not rest:
            return True if final else None if len(after) <= MAX_GAP else False
        follows = self._from.get(to, ())
        if rest.startswith(follows):
            return True
        # At the end of the output, what may follow was cut off itself.
        return (True if final else None) if any(m.startswith(rest) for m in follows) else False

    # -- openers: the head of a call, up to the name of its tool

    def _opens(
        self, role: Role, to: Role, before: Before, after: str, names: Collection[str], final: bool, source: Source
    ) -> bool | None:
        head = self._opens_call(to, after, names, final=False, whole=source is not Source.SPECIAL)
        if not head and role is Role.REASONING and names and not isinstance(names, AnyName):
            # Another parser reads the calls, maybe of a format with JSON between the same tags.
            other = _json_names_tool(after, names, final)
            head = other if other or head is False else head
        if source is Source.SPECIAL and head:
            return True
        if head:
            return role in TOOL or not is_example(before.text, whole=before.whole)
        if head is None and not final:
            return None
        if source is Source.SPELLED:
            return False
        if role in TOOL:
            # Cut off in the head of a further call, which is no text either way.
            return head is None
        if head is None:
            # Cut off in its head, unless it is the last word of a sentence.
            return not is_mentioned(before.text, after, whole=before.whole, final=True)
        if self._opens_call(to, after, AnyName(), final=False):
            return False
        mentioned = is_mentioned(before.text, after, whole=before.whole, final=final)
        if mentioned is not False:
            return None if mentioned is None else False
        return self._closed_again(to, after, final)

    def _closed_again(self, to: Role, after: str, final: bool) -> bool | None:
        """A block without a call in it: real where it is closed, and then no text, as for the engines."""
        closers = [m for m in self._from.get(to, ()) if self.moves[to, m] not in (Role.NAME, Role.ARGS)]
        openers = self._openers
        if not closers:
            return False
        body = after[: MAX_BLOCK + max(map(len, closers))]
        ends = min((at for m in closers if (at := body.find(m)) >= 0), default=-1)
        again = min((at for m in openers if (at := body.find(m)) >= 0), default=-1)
        if ends >= 0 and not 0 <= again < ends:
            return True
        return None if not final and again < 0 and len(body) == len(after) else False

    def _opens_call(
        self, role: Role, text: str, names: Collection[str], final: bool, *, whole: bool = False
    ) -> bool | None:
        """Whether ``text`` begins with the head of a call; ``whole``: and the first of its arguments begins."""
        if not names and not isinstance(names, AnyName):
            return False
        at = 0
        for _ in range(len(Role)):
            if role is Role.NAME:
                return self._names_tool(text[at:], names, final, whole)
            if role is Role.ARGS:
                return _json_names_tool(text[at:], names, final)
            start = at
            while at < len(text) and text[at].isspace():
                at += 1
            if at - start > MAX_GAP:
                return False
            rest = text[at:]
            marker = next((m for m in self._from.get(role, ()) if rest.startswith(m)), None)
            longer = any(m.startswith(rest) and len(m) > len(rest) for m in self._from.get(role, ()))
            if marker is None or (longer and not final and rest == marker):
                return None if longer and not final else False
            to = self.moves[role, marker]
            if to not in TOOL:
                return False
            role, at = to, at + len(marker)
        return False

    def _names_tool(self, text: str, names: Collection[str], final: bool, whole: bool) -> bool | None:
        # A name that was not closed ends where its block does, or with the next one.
        enders = (*self._from.get(Role.NAME, ()), *self._from.get(Role.PREAMBLE, ()))
        ends = [(at, m) for m in enders if (at := text.find(m)) >= 0]
        if ends:
            at, marker = min(ends, key=lambda found: (found[0], -len(found[1])))
            if plain_name(text[:at]) not in names:
                return False
            return self._begins_arguments(marker, text[at + len(marker) :], final) if whole else True
        head = text.lstrip()
        if final or len(text) - len(head) > MAX_GAP:
            return False
        if isinstance(names, AnyName):
            at = _NAME_HEAD.match(head).end()
            return None if any(m.startswith(head[at:]) for m in enders) else False
        for form in (form for name in names for form in (name, f"functions.{name}")):
            if form.startswith(head):
                return None
            if head.startswith(form):
                rest = _INDEX.sub("", head[len(form) :], count=1)
                gap = len(rest) - len(rest.lstrip())
                if gap <= MAX_GAP and any(m.startswith(rest.lstrip()) for m in enders):
                    return None
        return False

    def _begins_arguments(self, marker: str, text: str, final: bool) -> bool | None:
        """Whether what follows the ``marker`` behind a tool's name is how the format begins arguments."""
        arguments = self._from.get(Role.ARGS, ())
        known = any(self.moves[Role.ARGS, m] is Role.ARGS and not m.startswith("</") for m in arguments)
        if self.moves.get((Role.NAME, marker)) is not Role.ARGS or marker in arguments or not known:
            return True
        # A call without arguments may lack its own end.
        region = [m for m in self._from.get(Role.BETWEEN, ()) if self.moves[Role.BETWEEN, m] not in TOOL]
        rest = text.lstrip()
        if rest.startswith((*arguments, *region, "{")):
            return True
        if final or len(text) - len(rest) > MAX_GAP:
            return False
        return None if any(m.startswith(rest) for m in (*arguments, *region)) else False

    def longest_hold(self, names: Iterable[str]) -> int:
        """The most characters that a candidate can be held back for, for these tools."""
        marker = max((len(m) for _, m in self.moves), default=0)
        name = max((len(n) for n in names), default=0) + len("functions.:000")
        return marker + max(MAX_JSON_HEAD, MAX_BLOCK + marker, 4 * (MAX_GAP + marker) + name)


def plain_name(text: str) -> str:
    """The tool's name in ``functions.get_weather:0`` (Kimi K2), and as it stands elsewhere."""
    return re.sub(r":\d+\Z", "", text.strip().removeprefix("functions."))


def _json_names_tool(text: str, names: Collection[str], final: bool) -> bool | None:
    body = text.lstrip()
    if body and body[0] not in "{[":
        return False
    found = _JSON_NAME.search(body, 0, MAX_JSON_HEAD)
    if found:
        return found.group(3) in names
    return None if not final and len(body) < MAX_JSON_HEAD and len(text) - len(body) <= MAX_GAP else False
