"""How each tool is switched on in a running process, and the commands that start a program with it."""

from __future__ import annotations

import importlib
import sys
import warnings
from collections.abc import Callable
from types import ModuleType

PARSERS = (".parser", ".reasoning", ".tool_parsers")
"""Where most targets of the patches are, below the engine's package."""

MODULES = ("parser.abstract_parser", "parser.parser_manager", "parser.engine.parser_engine")


def wrapt(engine: str) -> None:
    import wrapt

    def watch(module: ModuleType) -> None:
        for cls in [value for value in vars(module).values() if isinstance(value, type)]:
            if cls.__module__ == module.__name__ and "parse_delta" in vars(cls):
                wrapt.wrap_function_wrapper(module, f"{cls.__name__}.parse_delta", passing)

    for name in (*MODULES, "entrypoints.openai.chat_completion.serving"):
        wrapt.register_post_import_hook(watch, f"{engine}.{name}")


def passing(wrapped: Callable, instance: object, args: tuple, kwargs: dict) -> object:
    if instance is None:
        raise RuntimeError("the wrapper of a method is not told whose it is")
    PASSED.append(wrapped.__name__)
    return wrapped(*args, **kwargs)


PASSED: list[str] = []
"""Calls that went through the wrapper of :func:`wrapt`."""


def ddtrace(engine: str) -> None:
    importlib.import_module("ddtrace.auto")


def opentelemetry(engine: str) -> None:
    from opentelemetry.instrumentation.auto_instrumentation import initialize

    initialize()


def coverage(engine: str) -> None:
    import coverage

    coverage.Coverage(data_file=None, source=[f"{engine}{part}" for part in PARSERS]).start()


def beartype(engine: str) -> None:
    from beartype import BeartypeConf
    from beartype.claw import beartype_packages

    # The engine's own annotations are wrong in places; a warning is not raised.
    warnings.simplefilter("ignore")
    beartype_packages(tuple(f"{engine}.{name}" for name in CHECKED), conf=BeartypeConf(violation_type=UserWarning))


CHECKED = ("parser.engine.streaming_parser_engine", "parser.engine.token_id_scanner")
"""Modules that run under beartype without the overlay. In others, such as reasoning.basic_parsers, it does not find
names of annotations that are imported for type checkers only, and the engine fails with or without us."""


def line_profiler(engine: str) -> None:
    from line_profiler import LineProfiler

    profiler = LineProfiler()
    warnings.simplefilter("ignore")
    for name, module in list(sys.modules.items()):
        if name.startswith(tuple(f"{engine}{part}" for part in PARSERS)):
            profiler.add_module(module, wrap=True)
    profiler.enable_by_count()


def reload(engine: str) -> None:
    for name in MODULES:
        module = sys.modules[f"{engine}.{name}"]
        BEFORE.update({id(value): value for value in vars(module).values() if isinstance(value, type)})
        importlib.reload(module)


BEFORE: dict[int, type] = {}
"""The classes of before the reload."""


ON: dict[str, Callable[[str], None]] = {
    tool.__name__: tool for tool in (wrapt, ddtrace, opentelemetry, coverage, beartype, line_profiler, reload)
}

def is_on(tool: str, engine: str) -> bool:
    """Whether the tool has its hands on this process: else being beside it would say nothing."""
    from engine_overlay import wrappers

    if tool == "ddtrace":
        return any(type(finder).__module__.startswith("ddtrace.") for finder in sys.meta_path)
    if tool == "opentelemetry":
        from opentelemetry.instrumentation.fastapi import FastAPIInstrumentor

        return bool(FastAPIInstrumentor().is_instrumented_by_opentelemetry)
    if tool == "coverage":
        import coverage

        return coverage.Coverage.current() is not None
    if tool == "wrapt":
        return bool(PASSED)
    classes = [
        value
        for name, module in list(sys.modules.items())
        if name.startswith(tuple(f"{engine}{part}" for part in PARSERS))
        for value in list(vars(module).values())
        if isinstance(value, type) and value.__module__ == name
    ]
    if tool == "reload":
        return bool(BEFORE) and not any(id(cls) in BEFORE for cls in classes if cls.__module__.endswith(MODULES))
    functions = [value for cls in classes for value in list(vars(cls).values()) if callable(value)]
    return tool == "none" or any(wrappers.maker_of(link) == tool for f in functions for link in wrappers.chain(f))


COMMANDS: dict[str, list[str]] = {
    "ddtrace": ["ddtrace-run", "python"],
    "opentelemetry": ["opentelemetry-instrument", "python"],
    "coverage": ["coverage", "run", "--data-file=/dev/null"],
}
"""Tools that start a program -> the command of theirs that stands in front of the program's own arguments."""
