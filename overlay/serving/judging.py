"""Whether a marker that an engine's own parser engine has found is real: the grammar, asked of the engine's objects."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from engine_overlay.engines import Engine
from engine_overlay.text.candidates import Candidates, tool_names
from engine_overlay.text.engine_grammar import ROLES, grammar_of
from engine_overlay.text.grammar import AnyName, Before, Role, Source

ADDED = "_engine_overlay_added"
"""Attribute of a parser configuration: its (state, terminal) pairs that the engine's own one does not have."""


class Judge:
    """Judges the candidates of every ``StreamingParserEngine`` of one engine."""

    def __init__(self, engine: Engine) -> None:
        scanner = engine.module("parser.engine.token_id_scanner")
        states = engine.module("parser.engine.streaming_parser_engine").ParserState
        self._prelexed = scanner.PreLexedTerminal
        self._drop = getattr(scanner, "DROP_TERMINAL", "__DROP__")
        self._plain = frozenset({states.CONTENT, states.REASONING})
        self._args = states.TOOL_ARGS
        parser = engine.module("parser.engine.parser_engine").ParserEngine
        self._no_skip = not hasattr(parser, "skip_reasoning_parsing")

    def __call__(
        self, parser_engine: Any, held: Candidates, queue: list[Any], at: int, final: bool
    ) -> bool | None:
        """True, False, or None for "more text is needed"; the marker's own item is ``queue[at]``."""
        item = queue[at]
        special = isinstance(item, self._prelexed)
        source = Source.SPECIAL if special else Source.UNKNOWN
        known = parser_engine._ever_had_token_ids and item.terminal in parser_engine._token_id_terminal_names
        if not special and known:
            source = Source.SPELLED
        state = parser_engine.state
        transition = parser_engine.config.transitions.get((state, item.terminal))
        if item.terminal == self._drop or transition is None or _left_alone(parser_engine, item.terminal):
            return source is not Source.SPELLED
        unasked = self._no_skip and {state, transition.next_state} <= self._plain
        unasked = unasked and _marks_reasoning(parser_engine.config, item.terminal)
        if unasked and _owner_of(parser_engine, "_overlay_no_reasoning"):
            # This release's engine does not know that nobody asked for reasoning, whose markers are text then.
            return False
        grammar = grammar_of(parser_engine.config)
        if source is not Source.SPELLED and not (_owner_of(parser_engine, "_overlay_serving") and grammar.plain):
            # Where nothing is confirmed, only what the engine itself believes.
            return (state, item.terminal) not in getattr(parser_engine.config, ADDED, ())
        role = ROLES.get(state.name, Role.OTHER)
        around = self._around(parser_engine, held, queue, at, source)
        return grammar.judge(role, *around, final=final, source=source)

    def ends_open_call(
        self, parser_engine: Any, held: Candidates, queue: list[Any], at: int, final: bool
    ) -> bool | None:
        """Whether a marker ends the arguments of a call that was left open; arguments as for a call of this."""
        item = queue[at]
        if (self._args, item.terminal) in parser_engine.config.transitions:
            return False
        if not _owner_of(parser_engine, "_overlay_serving"):
            return False
        source = Source.SPECIAL if isinstance(item, self._prelexed) else Source.UNKNOWN
        around = self._around(parser_engine, held, queue, at, source)
        return grammar_of(parser_engine.config).ends_open_call(*around, final=final, source=source)

    def _around(
        self, parser_engine: Any, held: Candidates, queue: list[Any], at: int, source: Source
    ) -> tuple[str, Before, str, Collection[str]]:
        """The marker as it is written, the block before it, the text behind it, and the tools that may be called."""
        names = offered(parser_engine, source)
        bound = grammar_of(parser_engine.config).longest_hold(names)
        after = ""
        # By places, since a copy of what follows each marker would cost the square of their number.
        for place in range(at + 1, len(queue)):
            other = queue[place]
            if other.terminal == self._drop:
                # The token that ends the answer, and others that the engine drops, are no text.
                continue
            after += other.text if isinstance(other, self._prelexed) else other.value
            if len(after) > bound:
                break
        before = held.before(json_open=parser_engine._args_brace_depth > 0 or parser_engine._args_in_string)
        item = queue[at]
        return item.text if isinstance(item, self._prelexed) else item.value, before, after, names


def _marks_reasoning(config: Any, terminal: str) -> bool:
    """Whether a marker that leads to no call is one of reasoning, rather than the closer of a call that is none."""
    moves = config.transitions.items()
    return any(of == terminal and "REASONING" in (state.name, move.next_state.name) for (state, of), move in moves)


def _owner_of(parser_engine: Any, name: str) -> Any:
    """An attribute of the parser whose engine this is; None without one."""
    reference = getattr(parser_engine, "_overlay_owner", None)
    return getattr(reference(), name, None) if reference is not None else None


def offered(parser_engine: Any, source: Source) -> Collection[str]:
    """The tools that a call may name; whatever name where it is not known which there are."""
    names = tool_names(_owner_of(parser_engine, "_overlay_tools"))
    if names:
        return names
    if source is Source.SPELLED:
        return tool_names(_owner_of(parser_engine, "_tools"))
    # A parser that was made without the tools of its requests: its owner takes whatever is called.
    return frozenset() if _owner_of(parser_engine, "_overlay_no_tools") else AnyName()


def _left_alone(parser_engine: Any, terminal: str) -> bool:
    """Whether this engine is not the one that looks for this marker; the engine's own code then does right."""
    if parser_engine.skip_tool_parsing and terminal in parser_engine._tool_terminals:
        return parser_engine.state.name in ("CONTENT", "MESSAGE_HEADER")
    skips = getattr(parser_engine, "skip_reasoning_parsing", False)
    return skips and terminal in parser_engine._reasoning_markup_terminals
