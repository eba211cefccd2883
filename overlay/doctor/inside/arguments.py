"""The engine's own reading of a command line, and what it refuses of it."""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import io
import os
import re
from typing import Any

_HOMES = ("entrypoints.openai.cli_args", "entrypoints.common.cli_args", "entrypoints.launchers.cli_args")
"""Where ``make_arg_parser`` of the server has been, over the releases."""

_FLAGS = (
    "model",
    "tokenizer",
    "tokenizer_mode",
    "revision",
    "trust_remote_code",
    "reasoning_parser",
    "tool_call_parser",
    "enable_auto_tool_choice",
    "tool_parser_plugin",
    "reasoning_parser_plugin",
    "reasoning_config",
    "speculative_config",
    "chat_template",
    "skip_tokenizer_init",
)


def parsed(asked: Any) -> dict[str, Any]:
    """``{"values": {flag: value} or None, "error": line or None, "refused": line or None, "options": [...]}``.

    ``error`` is what the parser says of a command line that it cannot read, and ``options`` are all flags it knows
    then; ``refused`` is what the server's own check says of one that it can. Plug-in files are loaded as it would.
    """
    module = _home(asked.engine)
    main, words = _parser(asked, module)
    said = io.StringIO()
    try:
        # usage lines are as wide as the terminal; the error is behind them
        with contextlib.redirect_stderr(said):
            args = main.parse_args(words)
    except SystemExit:
        text = " ".join(said.getvalue().partition(": error: ")[2].split())
        return {"values": None, "error": text or "the engine's parser refuses it", "options": _options(main)}
    except Exception as error:
        return {"values": None, "error": f"{type(error).__name__}: {error}", "options": _options(main)}
    if getattr(args, "model_tag", None) is not None:
        args.model = args.model_tag
    if asked.told.get("folder"):
        # A folder stands for the model that is named there: the same files, found without a network.
        args.model = asked.told["folder"]
    refused = None
    try:
        getattr(module, "validate_parsed_serve_args", lambda args: None)(args)
    except Exception as error:
        refused = f"{error}" or type(error).__name__
    for flag, manager, load in (
        ("tool_parser_plugin", "tool_parsers:ToolParserManager", "import_tool_parser"),
        ("reasoning_parser_plugin", "reasoning:ReasoningParserManager", "import_reasoning_parser"),
    ):
        path = getattr(args, flag, None)
        if path and not os.path.isfile(path):
            refused = refused or f"--{flag.replace('_', '-')} {path}: there is no such file"
        elif path:
            home, _, name = manager.partition(":")
            getattr(getattr(asked.engine.module(home), name), load)(path)
    asked.args = args
    values = {name: _plain(getattr(args, name)) for name in _FLAGS if hasattr(args, name)}
    structured = getattr(args, "structured_outputs_config", None)
    values["reasoning_parser"] = values.get("reasoning_parser") or getattr(structured, "reasoning_parser", None)
    # A config file may name what the words do not.
    asked.told |= {k: values[k] for k in ("reasoning_parser", "tool_call_parser", "tokenizer_mode") if values.get(k)}
    return {"values": values, "error": None, "refused": refused, "options": []}


def _home(engine: Any) -> Any:
    for home in _HOMES:
        if engine.source(home) is not None:
            return importlib.import_module(f"{engine.name}.{home}")
    raise LookupError("this release has its make_arg_parser in a module that is not known here")


def _parser(asked: Any, module: Any) -> tuple[Any, list[str]]:
    """The parser as the engine's command makes it, and the words for it."""
    flexible = asked.engine.module("utils.argparse_utils").FlexibleArgumentParser
    words = list(asked.told["words"])
    if asked.told.get("subcommand"):
        main = flexible(prog=asked.engine.name)
        # The parser looks for this very word: there it moves a --model and the lines of a --config file.
        words[0] = "serve"
        serve = main.add_subparsers(dest="subparser").add_parser("serve")
        module.make_arg_parser(serve)
        return main, words
    return module.make_arg_parser(flexible(prog="api_server")), words


def _options(parser: Any) -> list[str]:
    """Every long flag of the parser and of its subcommand."""
    found = set()
    for action in parser._actions:
        found |= {option for option in action.option_strings if option.startswith("--")}
        for sub in (action.choices or {}).values() if re.search("SubParsers", type(action).__name__) else ():
            found |= set(_options(sub))
    return sorted(found)


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: _plain(getattr(value, f.name, None)) for f in dataclasses.fields(value)}
    if isinstance(value, dict):
        return {str(key): _plain(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(inner) for inner in value]
    return value if value is None or isinstance(value, (bool, int, float, str)) else str(value)
