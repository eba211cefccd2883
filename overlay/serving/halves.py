"""Which of an engine's reasoning and tool parsers the own parser can stand in for, told by their classes.

A class is known when it is the engine's own and registered under a name that :mod:`engine_overlay.text.formats`
lists, or when it carries :data:`HALF`. What a user has registered under such a name is left alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from engine_overlay.engines import Engine
from engine_overlay.text.formats import STOCK_CALLS, STOCK_REASONING, Format, compose

HALF = "engine_overlay_half"
"""Attribute of the classes made here: the name of the half of a format that they read."""

SERVES_STOCK = "engine_overlay_serves_stock"
"""Attribute of ``ParserManager.get_parser`` while the stock names are served by the own parser too."""


class Pair(NamedTuple):
    """The halves that serve a server: names of ``formats.REASONING`` and ``formats.CALLS``, one may be None."""

    reasoning: str | None
    calls: str | None

    @property
    def form(self) -> Format:
        return compose(self.reasoning, self.calls)


def reasoning_manager(engine: Engine) -> Any:
    return engine.module("reasoning.abs_reasoning_parsers").ReasoningParserManager


def tool_manager(engine: Engine) -> Any:
    return engine.module("tool_parsers.abstract_tool_parser").ToolParserManager


def serves_stock(engine: Engine) -> bool:
    """Whether the own parser stands in for stock parsers; if not, it serves its own names only."""
    return getattr(engine.module("parser.parser_manager").ParserManager.get_parser, SERVES_STOCK, False)


def pair_of(engine: Engine, reasoning_cls: type | None, tool_cls: type | None) -> Pair | None:
    """The pair of these two parser classes, either of which may be None; None when one of them is not known."""
    reasoning = calls = None
    if reasoning_cls is not None:
        reasoning = _half(engine, reasoning_cls, reasoning_manager, STOCK_REASONING)
        if reasoning is None:
            return None
    if tool_cls is not None:
        calls = _half(engine, tool_cls, tool_manager, STOCK_CALLS)
        if calls is None:
            return None
    return Pair(reasoning, calls) if reasoning or calls else None


def _half(engine: Engine, cls: Any, manager_of: Any, stock: Mapping[str, str]) -> str | None:
    own = getattr(cls, HALF, None)
    if own is not None:
        return own
    module, name = getattr(cls, "__module__", ""), getattr(cls, "__qualname__", "")
    if not module.startswith(f"{engine.name}.") or not serves_stock(engine):
        return None
    registered = manager_of(engine).lazy_parsers
    return next((half for stock_name, half in stock.items() if registered.get(stock_name) == (module, name)), None)
