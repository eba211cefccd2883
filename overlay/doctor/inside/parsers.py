"""The engine's parsers, by their names and as made for this tokenizer: the markers they look for."""

from __future__ import annotations

import re
from typing import Any

_MARKER = re.compile(r"[<\[\u300c|].{0,80}\Z", re.DOTALL)
_BY_NAME = re.compile(r"_*(?:\w+_)?(?:start|end|begin|bot|eot|open|close)(?:_token|_str|_string)?\Z")
"""Attributes in which parsers keep the texts that begin and end something."""


def names(asked: Any) -> dict[str, list[str]]:
    """``{"reasoning": [...], "tools": [...]}``: every registered name, those of plug-ins and of the overlay too."""
    # The packages register what they ship.
    asked.engine.module("reasoning"), asked.engine.module("tool_parsers")
    return {kind: sorted(_manager(asked, kind).list_registered()) for kind in ("reasoning", "tools")}


def _manager(asked: Any, kind: str) -> Any:
    if kind == "reasoning":
        return asked.engine.module("reasoning").ReasoningParserManager
    return asked.engine.module("tool_parsers").ToolParserManager


def tokenizer(asked: Any) -> dict[str, Any]:
    """Load the tokenizer as the engine does; says its class."""
    told = asked.told
    get = asked.engine.module("tokenizers").get_tokenizer
    given = {"tokenizer_mode": told.get("tokenizer_mode") or "auto"}
    asked.tokenizer = get(told["tokenizer"], trust_remote_code=bool(told.get("trust_remote_code")), **given)
    return {"class": type(asked.tokenizer).__name__}


def parser_of(asked: Any, kind: str, name: str) -> Any:
    """The parser as a server makes it for a request."""
    if asked.tokenizer is None:
        raise LookupError("there is no tokenizer to make it with")
    if kind == "reasoning":
        return _manager(asked, kind).get_reasoning_parser(name)(asked.tokenizer)
    from engine_overlay.doctor.inside.template import request

    made = _manager(asked, kind).get_tool_parser(name)
    try:
        return made(asked.tokenizer, request(asked, tools=True).tools)
    except TypeError:
        # Releases up to vllm 0.18 give it the tools with each call only.
        return made(asked.tokenizer)


def reasoning(asked: Any) -> dict[str, Any] | None:
    """The markers of the configured reasoning parser, if any, and whether it finds its end in a whole answer.

    ``{"parser": class, "start", "end": text or None, "markers": [...], "whole": see below}``. ``whole`` is what the
    parser makes of "one END two" as the engine decodes it by default, [reasoning, content], or the error.
    """
    if not asked.told.get("reasoning_parser"):
        return None
    parser = parser_of(asked, "reasoning", asked.told["reasoning_parser"])
    start, end = (_text(parser, f"reasoning_{part}_str") for part in ("start", "end"))
    kept = dict(_strings(parser))
    if end is None:
        start = start or next((v for k, v in kept.items() if "start" in k), None)
        end = next((v for k, v in kept.items() if "end" in k), None)
    roles = (("start", start), ("end", end))
    markers = [marker(asked.tokenizer, text) | {"role": role} for role, text in roles if text]
    return {
        "parser": type(parser).__name__,
        "start": start,
        "end": end,
        "markers": markers,
        "whole": _whole(asked, parser, end) if end else None,
        "by_id": bool(_config_of(parser)),
    }


def _whole(asked: Any, parser: Any, end: str) -> list[str | None] | str:
    from engine_overlay.doctor.inside.template import request

    ids = [*_ids(asked.tokenizer, "one"), *_ids(asked.tokenizer, end), *_ids(asked.tokenizer, "two")]
    try:
        made = request(asked, tools=False)
        skip = getattr(_adjusted(parser, made), "skip_special_tokens", True)
        text = asked.tokenizer.decode(ids, skip_special_tokens=skip)
        return [None if part is None else str(part) for part in parser.extract_reasoning(text, made)]
    except Exception as error:
        return f"{type(error).__name__}: {error}"[:200]


def tools(asked: Any) -> dict[str, Any] | None:
    """The markers that the configured tool parser finds calls by, and whether special tokens stay in the text for it.

    ``{"parser": class, "markers": [...], "kept": bool}``.
    """
    from engine_overlay.doctor.inside.template import request

    if not asked.told.get("tool_call_parser"):
        return None
    parser = parser_of(asked, "tools", asked.told["tool_call_parser"])
    found: dict[str, str] = {}
    config = _config_of(parser)
    if config is not None:
        # By id are found only these; what else the format has is text.
        found = {f"{k}": v for k, v in config.token_id_terminals.items() if not k.startswith("THINK")}
    else:
        found = {k: v for k, v in _strings(parser) if _is_wrapper(parser, k)}
    texts = dict.fromkeys(text for text in found.values() if isinstance(text, str) and _MARKER.match(text))
    try:
        kept = not getattr(_adjusted(parser, request(asked, tools=True)), "skip_special_tokens", True)
    except Exception:
        kept = None
    return {
        "parser": type(parser).__name__,
        "markers": [marker(asked.tokenizer, text) for text in texts],
        "kept": kept,
        "by_id": config is not None,
    }


def _adjusted(parser: Any, made: Any) -> Any:
    adjust = getattr(parser, "adjust_request", None)
    return (adjust(request=made) or made) if adjust is not None else made


def _is_wrapper(parser: Any, name: str) -> bool:
    """Whether the parser knows the marker of this attribute by its token, too."""
    stem = name.removesuffix("_str").removesuffix("_string")
    return any(hasattr(parser, f"{stem}{end}") for end in ("_id", "_token_id", "_ids", "_token_ids"))


def _config_of(parser: Any) -> Any:
    """The declarative grammar of a parser of the engine's own parser engine; None for others."""
    for holder in (parser, getattr(parser, "_parser_engine", None), getattr(parser, "_engine", None)):
        config = getattr(holder, "parser_engine_config", None)
        if config is not None and isinstance(getattr(config, "token_id_terminals", None), dict):
            return config
    return None


def _strings(parser: Any) -> list[tuple[str, str]]:
    found: dict[str, str] = {}
    for name in dir(parser):
        if _BY_NAME.match(name) and (text := _text(parser, name)):
            found[name] = text
    return [(name, text) for name, text in found.items() if _MARKER.match(text)]


def _text(parser: Any, name: str) -> str | None:
    try:
        value = getattr(parser, name, None)
    except Exception:  # an abstract property
        return None
    return value if isinstance(value, str) and value else None


def marker(tokenizer: Any, text: str) -> dict[str, Any]:
    """``{"text", "ids", "pieces": [text of each token], "special": bool}`` of a marker as this tokenizer has it."""
    ids = _ids(tokenizer, text)
    pieces = [tokenizer.decode([i], skip_special_tokens=False) for i in ids]
    special = len(ids) == 1 and ids[0] in set(getattr(tokenizer, "all_special_ids", ()))
    return {"text": text, "ids": ids, "pieces": pieces, "special": special}


def _ids(tokenizer: Any, text: str) -> list[int]:
    return list(tokenizer.encode(text, add_special_tokens=False))
