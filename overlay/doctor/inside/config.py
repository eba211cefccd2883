"""The engine's own config for the command line, up to where an engine would be made of it, and what it refuses."""

from __future__ import annotations

from typing import Any

BUDGET = 16


def made(asked: Any) -> dict[str, Any]:
    """``{"values": the five of a profile, "reasoning_config": {...} or None}`` of the finished config."""
    if asked.args is None:
        raise LookupError("the flags could not be read")
    arguments = asked.engine.module("engine.arg_utils").AsyncEngineArgs
    asked.config = arguments.from_cli_args(asked.args).create_engine_config()
    from engine_overlay.patches.runtime import effective_values

    chosen = getattr(asked.config, "reasoning_config", None)
    kept = ("reasoning_start_str", "reasoning_end_str", "reasoning_start_token_ids", "reasoning_end_token_ids")
    return {
        "values": {key: _plain(v) for key, v in effective_values.values(asked.engine, asked.config).items()},
        "reasoning_config": None if chosen is None else {name: _plain(getattr(chosen, name, None)) for name in kept},
    }


def budget(asked: Any) -> dict[str, Any]:
    """``{"known": bool, "refused": line or None}``: what the engine says of a request with a thinking budget."""
    params = asked.engine.module("sampling_params").SamplingParams
    if "thinking_token_budget" not in getattr(params, "__struct_fields__", ()) and not hasattr(
        params, "thinking_token_budget"
    ):
        return {"known": False, "refused": None}
    if asked.config is None:
        raise LookupError("the engine's config could not be made")
    processor = asked.engine.module("v1.engine.input_processor").InputProcessor(asked.config)
    # What is wrong with every request is no matter of budgets: it raises here.
    processor._validate_params(params(max_tokens=64), ("generate",))
    try:
        processor._validate_params(params(thinking_token_budget=BUDGET, max_tokens=64), ("generate",))
    except Exception as error:
        return {"known": True, "refused": " ".join(str(error).split())[:300]}
    return {"known": True, "refused": None}


def _plain(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return [_plain(inner) for inner in value]
    return value if value is None or isinstance(value, (bool, int, float, str)) else str(value)
