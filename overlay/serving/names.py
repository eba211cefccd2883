"""The names of the own parsers: one for an engine's reasoning parser and tool parser alike.

On releases with a parser engine of their own the same names stand for the stock parsers, so that one command
launches every release.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from engine_overlay.engines import Engine
from engine_overlay.serving import classes
from engine_overlay.serving.halves import Pair, reasoning_manager, tool_manager
from engine_overlay.text.formats import UNIFIED

_STOCK_TOOLS = {"qwen3_xml": "qwen3_coder", "glm": "glm47"}
"""The stock parser for a way to write calls, where it is named otherwise."""


def stock_names(name: str) -> tuple[str, str]:
    """The stock reasoning parser and tool parser that a name of the own parsers goes with. Raises KeyError."""
    reasoning, calls = UNIFIED[name]
    return reasoning, _STOCK_TOOLS.get(calls, calls)


def has_parser_engine(engine: Engine) -> bool:
    """Whether the release parses reasoning and calls in one parser itself."""
    return engine.source("parser.engine.parser_engine") is not None


def known(engine: Engine) -> list[str]:
    """The names of the own parsers whose stock parts this release has."""
    reasoning, tools = reasoning_manager(engine), tool_manager(engine)
    has_reasoning = {*reasoning.reasoning_parsers, *reasoning.lazy_parsers}
    has_tools = {*tools.tool_parsers, *tools.lazy_parsers}
    return [n for n in UNIFIED if stock_names(n)[0] in has_reasoning and stock_names(n)[1] in has_tools]


def reasoning_parser(engine: Engine, name: str, stock_class: Callable[[str], type]) -> type:
    """The reasoning parser class of this name; ``stock_class`` gets the engine's own by its name."""
    stock = stock_class(stock_names(name)[0])
    return stock if has_parser_engine(engine) else classes.reasoning_class(engine, stock, Pair(*UNIFIED[name]))


def tool_parser(engine: Engine, name: str, stock_class: Callable[[str], type]) -> type:
    """The tool parser class of this name; ``stock_class`` gets the engine's own by its name."""
    stock = stock_class(stock_names(name)[1])
    return stock if has_parser_engine(engine) else classes.tool_class(engine, stock, Pair(*UNIFIED[name]))


def of_manager(manager: Any, name: str, registered: dict[str, Any]) -> bool:
    """Whether the name is one of ours here and nobody else has taken it."""
    return name in UNIFIED and name not in registered and name not in manager.lazy_parsers


def for_probe(engine: Engine) -> tuple[str, str]:
    """Names for a reasoning and a tool parser for Qwen3 that the own parser serves, if it serves any here."""
    # The package registers the stock parsers.
    engine.module("reasoning")
    ours = "qwen3_engine" in reasoning_manager(engine).list_registered()
    return ("qwen3_engine", "qwen3_engine") if ours else stock_names("qwen3_engine")
