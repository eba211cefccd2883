"""Chat completions through the own parser: the two generators of the serving code, given other parsers and outputs."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

from engine_overlay.engines import Engine
from engine_overlay.serving.classes import wire_of
from engine_overlay.serving.halves import Pair, pair_of
from engine_overlay.serving.session import Session
from engine_overlay.serving.stand_ins import Settler, StandInParser, StandInReasoning, shadow

Arguments = dict[str, Any]


def stream_call(engine: Engine, signature: inspect.Signature, serving: Any, args: Any, kwargs: Any) -> Any:
    """The (serving, arguments) to call ``chat_completion_stream_generator`` with, or None to leave it alone."""
    values = signature.bind(serving, *args, **kwargs).arguments
    session = _session(engine, serving, values, None)
    if session is None:
        return None
    values = dict(values, result_generator=session.deltas(values["result_generator"]))
    # Up to vllm 0.20 the generator asks the reasoning parser itself, in all or some of its branches.
    values["reasoning_parser"] = StandInReasoning()
    return _called(shadow(serving, parser_cls=StandInParser, tool_parser=None), values)


def full_call(engine: Engine, signature: inspect.Signature, serving: Any, args: Any, kwargs: Any) -> Any:
    """The (serving, arguments) to call ``chat_completion_full_generator`` with, or None to leave it alone."""
    values = signature.bind(serving, *args, **kwargs).arguments
    session = _session(engine, serving, values, values.get("parser"))
    if session is None:
        return None
    settler = Settler(values["request"])
    values = dict(values, request=settler.request, result_generator=session.wholes(values["result_generator"]))
    if "parser" in signature.parameters:
        return _called(shadow(serving), dict(values, parser=settler))
    values["reasoning_parser"] = StandInReasoning()
    return _called(shadow(serving, _parse_tool_calls_from_content=settler.parse_tool_calls), values)


def _called(serving: Any, values: Arguments) -> tuple[Any, Arguments]:
    return serving, {name: value for name, value in values.items() if name != "self"}


def _session(engine: Engine, serving: Any, values: Arguments, parser: Any) -> Session | None:
    """The session of the request, or None when its parsers are not ours to stand in for."""
    tokenizer, request = values["tokenizer"], values["request"]
    # Mistral's tokenizer has ids of calls, and a grammar, of its own.
    if getattr(serving, "use_harmony", False) or tokenizer is None or type(tokenizer).__name__ == "MistralTokenizer":
        return None
    pair = _pair(engine, serving, values.get("reasoning_parser"), parser)
    if pair is None:
        return None
    wire = wire_of(engine)
    ids = wire.call_ids(getattr(serving, "tool_call_id_type", None), values.get("conversation"))
    session = Session(wire, pair, tokenizer, request, _template(serving, values), ids)
    return None if session.asked.forced and pair.calls is None else session


def _pair(engine: Engine, serving: Any, reasoning_parser: Any, parser: Any) -> Pair | None:
    if parser is not None:
        return pair_of(engine, parser.reasoning_parser_cls, parser.tool_parser_cls)
    # Without auto tool choice there is no tool parser, whatever its name.
    reasoning = None if reasoning_parser is None else type(reasoning_parser)
    return pair_of(engine, reasoning, serving.tool_parser)


def _template(serving: Any, values: Arguments) -> Mapping[str, Any]:
    if values.get("chat_template_kwargs"):
        return values["chat_template_kwargs"]
    default = getattr(serving, "default_chat_template_kwargs", None) or {}
    return {**default, **(getattr(values["request"], "chat_template_kwargs", None) or {})}
