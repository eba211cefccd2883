"""Responses through the own parser: the streaming generator and the items of a whole answer."""

from __future__ import annotations

import contextvars
import inspect
from typing import Any

from engine_overlay.engines import Engine
from engine_overlay.serving.classes import answered, wire_of
from engine_overlay.serving.halves import pair_of
from engine_overlay.serving.session import Session
from engine_overlay.serving.stand_ins import StandInParser, shadow

context_of_answer: contextvars.ContextVar[Any] = contextvars.ContextVar("context_of_answer", default=None)
"""The context whose answer is being made into items: it knows the prompt, which the item maker is not given."""


def stream_call(engine: Engine, signature: inspect.Signature, serving: Any, args: Any, kwargs: Any) -> Any:
    """The (serving, arguments) to call ``_process_simple_streaming_events`` with, or None to leave it alone."""
    values = dict(signature.bind(serving, *args, **kwargs).arguments)
    session = _session(engine, serving, values["request"], values["tokenizer"])
    if session is None:
        return None
    del values["self"]
    values["result_generator"] = session.contexts(values["result_generator"])
    return shadow(serving, parser=StandInParser), values


def items_serving(engine: Engine, serving: Any, request: Any, final_output: Any, tokenizer: Any) -> Any:
    """The serving object to call ``_make_response_output_items`` on, or None to leave it alone."""
    session = _session(engine, serving, request, tokenizer)
    if session is None:
        return None
    result = getattr(context_of_answer.get(), "last_output", None)
    prompt_ids = getattr(result, "prompt_token_ids", None)
    whole = session.whole(final_output.text, final_output.token_ids, prompt_ids)
    return shadow(serving, parser=lambda *args, **kwargs: answered(engine, whole))


def _session(engine: Engine, serving: Any, request: Any, tokenizer: Any) -> Session | None:
    parser = serving.parser
    if parser is None or tokenizer is None or type(tokenizer).__name__ == "MistralTokenizer":
        return None
    pair = pair_of(engine, parser.reasoning_parser_cls, parser.tool_parser_cls)
    if pair is None:
        return None
    wire = wire_of(engine)
    template = getattr(request, "chat_template_kwargs", None)
    default = getattr(serving, "default_chat_template_kwargs", None)
    if default:
        template = {**default, **(template or {})}
    ids = wire.call_ids(getattr(serving, "tool_call_id_type", None))
    session = Session(wire, pair, tokenizer, request, template, ids)
    return None if session.asked.forced and pair.calls is None else session
