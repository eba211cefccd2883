"""The model formats that the own parser reads, as data: how an answer reasons, and how it writes calls.

The two halves are combined freely (:func:`compose`), as engines combine a reasoning parser and a tool parser.
"""

from __future__ import annotations

import enum
import functools
from collections.abc import Mapping
from dataclasses import dataclass, replace

from engine_overlay.text.dsml import BAR, WRAPPERS, closer, opener
from engine_overlay.text.grammar import TOOL, Grammar, Role
from engine_overlay.text.markup import DSML, EQUALS, NAMED, PAIRS, Syntax, Trim

_CONTENT, _REASONING = Role.CONTENT, Role.REASONING
_PREAMBLE, _NAME, _ARGS, _BETWEEN = Role.PREAMBLE, Role.NAME, Role.ARGS, Role.BETWEEN


class Body(enum.Enum):
    """What stands between the markers of a call."""

    MARKUP = "arguments as markup"
    JSON = "the arguments as one JSON object"
    JSON_CALL = "one JSON object with the name and the arguments"


@dataclass(frozen=True, slots=True)
class Reasoning:
    """How a model marks its reasoning. ``reopens``: ``start`` begins a further block in the middle of an answer."""

    start: str
    end: str
    reopens: bool = False


@dataclass(frozen=True, slots=True)
class Calls:
    """How a model writes calls.

    ``moves`` as in :class:`engine_overlay.text.grammar.Grammar`, with CONTENT for wherever a call may begin.
    ``tokens`` are the markers that the models have as special tokens. ``syntax`` is that of arguments as markup.
    ``guarded``: ends of the arguments that count outside of values only, also as special tokens. ``ids``: what stands
    for the name is the id of the call, as in ``functions.get_weather:0``.
    """

    moves: Mapping[tuple[Role, str], Role]
    tokens: tuple[str, ...]
    body: Body
    syntax: Syntax | None = None
    value_closers: tuple[str, ...] = ()
    guarded: tuple[str, ...] = ()
    ids: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Format:
    """A whole format: both halves, either of which may be missing, and the grammar of their combination."""

    reasoning: Reasoning | None
    calls: Calls | None
    grammar: Grammar

    @property
    def start(self) -> str | None:
        return self.reasoning.start if self.reasoning else None

    @property
    def end(self) -> str | None:
        return self.reasoning.end if self.reasoning else None

    @property
    def markers(self) -> tuple[str, ...]:
        """Every marker, in no special order."""
        return tuple(dict.fromkeys(marker for _, marker in self.grammar.moves))

    @property
    def tokens(self) -> tuple[str, ...]:
        """The markers that the models have as special tokens, and that are found by their ids."""
        thinks = (self.reasoning.start, self.reasoning.end) if self.reasoning else ()
        return (*thinks, *(self.calls.tokens if self.calls else ()))


_THINK = Reasoning("<think>", "</think>")

REASONING: Mapping[str, Reasoning] = {
    "qwen3": _THINK,
    "deepseek_r1": _THINK,
    "deepseek_v3": _THINK,
    "deepseek_v4": _THINK,
    "glm45": Reasoning("<think>", "</think>", reopens=True),
    "kimi_k2": _THINK,
    "minimax_m2": _THINK,
    "nemotron_v3": _THINK,
}

_QWEN3_XML = Calls(
    moves={
        (_CONTENT, "<tool_call>"): _PREAMBLE,
        (_CONTENT, "<function="): _NAME,
        (_PREAMBLE, "<function="): _NAME,
        (_PREAMBLE, "</tool_call>"): _CONTENT,
        (_NAME, ">"): _ARGS,
        (_NAME, "</function>"): _BETWEEN,
        (_NAME, "</tool_call>"): _CONTENT,
        (_NAME, "<tool_call>"): _PREAMBLE,
        (_NAME, "<function="): _NAME,
        (_ARGS, "<parameter="): _ARGS,
        (_ARGS, "</parameter>"): _ARGS,
        (_ARGS, "</function>"): _BETWEEN,
        (_ARGS, "<function="): _NAME,
        (_ARGS, "</tool_call>"): _CONTENT,
        (_BETWEEN, "<function="): _NAME,
        (_BETWEEN, "<tool_call>"): _PREAMBLE,
        (_BETWEEN, "</tool_call>"): _CONTENT,
    },
    tokens=("<tool_call>", "</tool_call>"),
    body=Body.MARKUP,
    syntax=replace(EQUALS, trim=Trim.NEWLINE),
    value_closers=("</parameter>",),
    guarded=("</tool_call>",),
)


def _json_calls(opener: str, closer: str) -> Calls:
    return Calls(
        moves={(_CONTENT, opener): _ARGS, (_ARGS, closer): _CONTENT, (_ARGS, opener): _ARGS},
        tokens=(opener, closer),
        body=Body.JSON_CALL,
        guarded=(closer, opener),
    )


_GLM = Calls(
    moves={
        (_CONTENT, "<tool_call>"): _NAME,
        (_NAME, "<arg_key>"): _ARGS,
        (_NAME, "</tool_call>"): _CONTENT,
        (_NAME, "<tool_call>"): _NAME,
        (_ARGS, "<arg_key>"): _ARGS,
        (_ARGS, "</arg_key>"): _ARGS,
        (_ARGS, "<arg_value>"): _ARGS,
        (_ARGS, "</arg_value>"): _ARGS,
        (_ARGS, "</tool_call>"): _CONTENT,
    },
    tokens=("<tool_call>", "</tool_call>"),
    body=Body.MARKUP,
    syntax=PAIRS,
    value_closers=("</arg_key>", "</arg_value>"),
)

_KIMI_K2 = Calls(
    moves={
        (_CONTENT, "<|tool_calls_section_begin|>"): _PREAMBLE,
        (_PREAMBLE, "<|tool_call_begin|>"): _NAME,
        (_PREAMBLE, "<|tool_calls_section_end|>"): _CONTENT,
        (_NAME, "<|tool_call_argument_begin|>"): _ARGS,
        (_NAME, "<|tool_call_end|>"): _BETWEEN,
        (_NAME, "<|tool_calls_section_end|>"): _CONTENT,
        (_ARGS, "<|tool_call_end|>"): _BETWEEN,
        (_ARGS, "<|tool_calls_section_end|>"): _CONTENT,
        (_BETWEEN, "<|tool_call_begin|>"): _NAME,
        (_BETWEEN, "<|tool_calls_section_end|>"): _CONTENT,
    },
    tokens=(
        "<|tool_calls_section_begin|>",
        "<|tool_calls_section_end|>",
        "<|tool_call_begin|>",
        "<|tool_call_end|>",
        "<|tool_call_argument_begin|>",
    ),
    body=Body.JSON,
    ids=True,
)

_INVOKES = ('<invoke name="', "<invoke name='", "<invoke name=")
_MINIMAX_M2 = Calls(
    moves={
        (_CONTENT, "<minimax:tool_call>"): _PREAMBLE,
        (_CONTENT, "</minimax:tool_call>"): _CONTENT,
        (_PREAMBLE, "</minimax:tool_call>"): _CONTENT,
        **{(role, invoke): _NAME for role in (_CONTENT, _PREAMBLE, _BETWEEN) for invoke in _INVOKES},
        **{(_NAME, end): _ARGS for end in ('">', "'>", ">")},
        (_NAME, "</invoke>"): _BETWEEN,
        (_NAME, "</minimax:tool_call>"): _CONTENT,
        (_ARGS, "<parameter name="): _ARGS,
        (_ARGS, "</parameter>"): _ARGS,
        (_ARGS, "</invoke>"): _BETWEEN,
        (_ARGS, "</minimax:tool_call>"): _CONTENT,
        (_BETWEEN, "</minimax:tool_call>"): _CONTENT,
    },
    tokens=("<minimax:tool_call>", "</minimax:tool_call>"),
    body=Body.MARKUP,
    syntax=NAMED,
    value_closers=("</parameter>",),
    guarded=("</minimax:tool_call>",),
)

_DSML_OPENERS, _DSML_CLOSERS = ((*map(tag, WRAPPERS[:2]),) for tag in (opener, closer))
_INVOKE, _INVOKE_END = f'<{BAR}invoke name="', closer("invoke")
_DSML = Calls(
    moves={
        **{(role, opener(name)): _PREAMBLE for role in (_CONTENT, _BETWEEN) for name in WRAPPERS},
        **{
            (role, closer(name)): _CONTENT
            for role in (_CONTENT, _PREAMBLE, _NAME, _ARGS, _BETWEEN)
            for name in WRAPPERS
        },
        **{(role, _INVOKE): _NAME for role in (_CONTENT, _PREAMBLE, _ARGS, _BETWEEN)},
        (_NAME, '">'): _ARGS,
        (_NAME, _INVOKE_END): _BETWEEN,
        (_ARGS, f"<{BAR}parameter"): _ARGS,
        (_ARGS, closer("parameter")): _ARGS,
        (_ARGS, _INVOKE_END): _BETWEEN,
        # What models leave behind their calls and at the end of their answers.
        (_CONTENT, _INVOKE_END): _CONTENT,
        (_CONTENT, closer("parameter")): _CONTENT,
    },
    # Of the tokenizers that are known none has them, and the engines look for them as tokens all the same.
    tokens=(*_DSML_OPENERS, *_DSML_CLOSERS),
    body=Body.MARKUP,
    syntax=DSML,
    value_closers=(closer("parameter"),),
    guarded=_DSML_CLOSERS,
)

CALLS: Mapping[str, Calls] = {
    "qwen3_xml": _QWEN3_XML,
    "hermes": _json_calls("<tool_call>", "</tool_call>"),
    "longcat": _json_calls("<longcat_tool_call>", "</longcat_tool_call>"),
    "glm": _GLM,
    "kimi_k2": _KIMI_K2,
    "minimax_m2": _MINIMAX_M2,
    "deepseek_v32": _DSML,
    "deepseek_v4": _DSML,
}

UNIFIED: Mapping[str, tuple[str, str]] = {
    "qwen3_engine": ("qwen3", "qwen3_xml"),
    "hermes_engine": ("qwen3", "hermes"),
    "deepseek_r1_engine": ("deepseek_r1", "hermes"),
    "glm_engine": ("glm45", "glm"),
    "kimi_k2_engine": ("kimi_k2", "kimi_k2"),
    "minimax_m2_engine": ("minimax_m2", "minimax_m2"),
    "deepseek_v32_engine": ("deepseek_v3", "deepseek_v32"),
    "deepseek_v4_engine": ("deepseek_v4", "deepseek_v4"),
}
"""Names that can be given to an engine for its reasoning parser and its tool parser alike: the two halves."""

STOCK_REASONING: Mapping[str, str] = {
    "qwen3": "qwen3",
    "deepseek_r1": "deepseek_r1",
    "deepseek_v3": "deepseek_v3",
    "deepseek_v4": "deepseek_v4",
    "glm45": "glm45",
    "kimi_k2": "kimi_k2",
    "minimax_m2": "minimax_m2",
    "nemotron_v3": "nemotron_v3",
}
"""An engine's own name of a reasoning parser -> the half that reads the same format."""

STOCK_CALLS: Mapping[str, str] = {
    "qwen3_coder": "qwen3_xml",
    "qwen3_xml": "qwen3_xml",
    "hermes": "hermes",
    "glm45": "glm",
    "glm47": "glm",
    "kimi_k2": "kimi_k2",
    "minimax_m2": "minimax_m2",
    "deepseek_v32": "deepseek_v32",
    "deepseek_v4": "deepseek_v4",
}
"""An engine's own name of a tool parser -> the half that reads the same format."""


@functools.cache
def compose(reasoning: str | None, calls: str | None) -> Format:
    """The format of these two halves, by their names in :data:`REASONING` and :data:`CALLS`.

    Raises KeyError for a name that is not there.
    """
    thinks = REASONING[reasoning] if reasoning is not None else None
    writes = CALLS[calls] if calls is not None else None
    moves: dict[tuple[Role, str], Role] = dict(writes.moves) if writes else {}
    ends: set[tuple[Role, str]] = set()
    if thinks:
        for (role, marker), to in tuple(moves.items()):
            # A call ends the reasoning; a lone closer of the format does not, nor does a call without its wrapper.
            if role is _CONTENT and to in TOOL and not _bare(moves, marker):
                moves[_REASONING, marker] = to
                ends.add((_REASONING, marker))
        moves[_REASONING, thinks.start] = _REASONING
        moves[_REASONING, thinks.end] = _CONTENT
        moves[_CONTENT, thinks.end] = _CONTENT
        ends.add((_REASONING, thinks.end))
        if thinks.reopens:
            moves[_CONTENT, thinks.start] = _REASONING
    closers = writes.value_closers if writes else ()
    json_args = writes is not None and writes.body is not Body.MARKUP
    return Format(thinks, writes, Grammar(moves, frozenset(ends), closers, json_args))


def _bare(moves: Mapping[tuple[Role, str], Role], marker: str) -> bool:
    """Whether a marker also stands inside the format's wrapper, so that it is the call's own opener."""
    return (_PREAMBLE, marker) in moves
