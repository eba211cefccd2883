"""The grammar that an engine's parser configuration describes.

The configuration is told apart by its attributes alone: nothing here imports an engine.
"""

from __future__ import annotations

from typing import Any

from engine_overlay.text.grammar import Grammar, Role

ROLES = {
    "CONTENT": Role.CONTENT,
    "REASONING": Role.REASONING,
    "TOOL_PREAMBLE": Role.PREAMBLE,
    "TOOL_NAME": Role.NAME,
    "TOOL_ARGS": Role.ARGS,
    "TOOL_BETWEEN": Role.BETWEEN,
}
"""What the states of an engine mean; every other one is of no role here."""


def grammar_of(config: Any) -> Grammar:
    """The grammar that an engine's ``ParserEngineConfig`` describes, kept with the config."""
    known = vars(config).get("_engine_overlay_grammar")
    if known is not None:
        return known
    moves: dict[tuple[Role, str], Role] = {}
    ends: set[tuple[Role, str]] = set()
    leaves_args: set[str] = set()
    for (state, terminal), transition in config.transitions.items():
        role = ROLES.get(state.name, Role.OTHER)
        to = ROLES.get(transition.next_state.name, Role.OTHER)
        for literal in _literals(config, terminal):
            moves[role, literal] = to
            if any(event.name == "REASONING_END" for event in transition.events):
                ends.add((role, literal))
            if role is Role.ARGS and to is not Role.ARGS:
                leaves_args.add(literal)
    closers = {
        literal
        for terminal in config.terminals
        if terminal not in config.token_id_terminals
        for literal in _literals(config, terminal)
        if literal.startswith("</") and literal not in leaves_args
    }
    grammar = Grammar(moves, frozenset(ends), tuple(sorted(closers)), bool(config.tool_args_json))
    # The config is frozen, shared by all requests, and lives as long as its parser class.
    object.__setattr__(config, "_engine_overlay_grammar", grammar)
    return grammar


def _literals(config: Any, terminal: str) -> tuple[str, ...]:
    value = config.terminals.get(terminal, ())
    return (value,) if isinstance(value, str) else tuple(value)
