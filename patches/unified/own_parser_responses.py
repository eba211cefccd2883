"""Responses through one text-true parser, where an engine has no parser engine.

Symptom: ``/v1/responses`` of a model that spells ``</think>`` or ``<tool_call>`` with sub-word tokens streams the
whole answer as reasoning, and the finished response lacks the calls or holds their markup as text; a model that only
mentions a tag loses text.

Cause: vLLM up to 0.23 and Aphrodite up to 0.21 have separate reasoning and tool parsers, each with rules of its own,
joined by a gate that goes by token ids; the finished response is parsed by its bare text.

Change: the outputs of the engine are parsed by one parser that reads the whole format; the serving code gets
stand-ins that hand out the result, one thing (reasoning, text, a call, its arguments) at a time. What stays: events
and items are made by the serving code, and parsers that are not listed or that a user has registered stay.

Risk: where one output brought several things, the client gets more events than before.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Mapping
from typing import Any

from engine_overlay.engines import Engine
from engine_overlay.record import Finding, Outcome, Patch, Range, Target
from engine_overlay.serving import names, responses

_RESPONSES = "entrypoints.openai.responses.serving:OpenAIServingResponses"
_STREAM = f"{_RESPONSES}._process_simple_streaming_events"
_FULL = f"{_RESPONSES}.responses_full_generator"
_ITEMS = f"{_RESPONSES}._make_response_output_items"

PATCH = Patch(
    id="own_parser_responses",
    engines={"vllm": Range("0.18.0", "0.23.0"), "aphrodite": Range("0.20.0", "0.21.0")},
    targets=(
        Target(
            path=_STREAM,
            bodies=(
                "75d3803e8698",  # vllm 0.18
                "23b4429d7940",  # vllm 0.19
                "a3ff985084e6",  # vllm 0.20, aphrodite 0.20.0
                "c45726ca3505",  # vllm 0.21, 0.22, aphrodite 0.21.0
                "32d580ab808f",  # vllm 0.23
            ),
        ),
        Target(
            path=_FULL,
            bodies=(
                "22c38068240a",  # vllm 0.18
                "c0dbd462aa97",  # vllm 0.19
                "c5b194b5a733",  # vllm 0.20 to 0.23, aphrodite 0.20, 0.21
            ),
        ),
        Target(
            path=_ITEMS,
            bodies=(
                "da0e1c4e643e",  # vllm 0.18
                "098bd97631fe",  # vllm 0.19
                "a07a6ecfd592",  # vllm 0.20 to 0.22, aphrodite 0.20, 0.21
                "d734e94e9d74",  # vllm 0.23
            ),
        ),
    ),
    reads=(
        Target(
            path="parser.abstract_parser:DelegatingParser.extract_response_outputs",
            bodies=("60be8e3e6070", "81ca9e8a3e33"),
        ),
        # The last output of the context is shown in parts, and whole again when it is asked for.
        Target(path="entrypoints.openai.responses.context:SimpleContext.final_output", bodies=("94b1c718eb32",)),
    ),
    upstream=(),
    relationship="different approach",
    introduced_in={"vllm": "0.18.0", "aphrodite": "0.20.0"},
    # These have the parser engine.
    fixed_in={"vllm": "0.24.0", "aphrodite": "0.22.0"},
    superseded_by="spelled_markers",
    group=None,
    requires=(),
    conflicts=(),
    # It marks the last delta for the parsers that this one does not stand in for.
    after=("last_delta_responses",),
    default=True,
    default_reason="without it answers lose text and calls; parsers that are not listed stay as they are",
    scope=("server",),
    native_alternative=None,
    remove_when="vLLM before 0.24.0 and Aphrodite before 0.22.0 are no longer supported",
)


def build(engine: Engine, originals: Mapping[str, Any]) -> Mapping[str, Any]:
    stream, full, items = (originals[path] for path in (_STREAM, _FULL, _ITEMS))
    stream_signature = inspect.signature(stream)
    full_signature = inspect.signature(full)

    def process_simple_streaming_events(self: Any, *args: Any, **kwargs: Any) -> Any:
        call = responses.stream_call(engine, stream_signature, self, args, kwargs)
        if call is None:
            return stream(self, *args, **kwargs)
        return stream(call[0], **call[1])

    async def responses_full_generator(self: Any, *args: Any, **kwargs: Any) -> Any:
        context = full_signature.bind(self, *args, **kwargs).arguments["context"]
        token = responses.context_of_answer.set(context)
        try:
            return await full(self, *args, **kwargs)
        finally:
            responses.context_of_answer.reset(token)

    def make_response_output_items(self: Any, request: Any, final_output: Any, tokenizer: Any) -> Any:
        serving = responses.items_serving(engine, self, request, final_output, tokenizer)
        return items(self if serving is None else serving, request, final_output, tokenizer)

    return {
        _STREAM: process_simple_streaming_events,
        _FULL: responses_full_generator,
        _ITEMS: make_response_output_items,
    }


_PIECES = ("I", " see", ".", "</", "think", ">", "\n\n", "Four", ".")


def probe(engine: Engine) -> Finding:
    """Stream an answer with a spelled ``</think>`` through the responses serving code behind the parser for Qwen3."""
    if names.has_parser_engine(engine):
        return Finding(Outcome.ABSENT, "this release has a parser engine")
    from engine_overlay.serving import probing

    seen = probing.run(_streamed(engine))
    if seen == {"reasoning": "I see.", "text": "Four."}:
        return Finding(Outcome.ABSENT, str(seen))
    if seen["reasoning"].startswith("I see.</think>"):
        return Finding(Outcome.PRESENT, str(seen))
    return Finding(Outcome.UNKNOWN, str(seen))


async def _streamed(engine: Engine) -> dict[str, str]:
    from engine_overlay.serving import probing

    serving = engine.module("entrypoints.openai.responses.serving")
    protocol = engine.module("entrypoints.openai.responses.protocol")
    server = probing.bare(serving.OpenAIServingResponses)
    manager = engine.module("parser.parser_manager").ParserManager
    server.parser = manager.get_parser(reasoning_parser_name=names.for_probe(engine)[0])
    tokenizer = probing.tokenizer(_PIECES)
    context = serving.SimpleContext()

    async def contexts() -> AsyncIterator[Any]:
        for result in probing.outputs(engine, tokenizer, _PIECES):
            context.append_output(result)
            yield context

    seen = {"reasoning": "", "text": ""}
    stream = server._process_simple_streaming_events(
        request=protocol.ResponsesRequest(model="m", input="?"),
        sampling_params=None,
        result_generator=contexts(),
        context=context,
        model_name="m",
        tokenizer=tokenizer,
        request_metadata=None,
        created_time=0,
        _increment_sequence_number_and_return=lambda event: event,
    )
    async for event in stream:
        if event.type == "response.reasoning_text.delta":
            seen["reasoning"] += event.delta
        elif event.type == "response.output_text.delta":
            seen["text"] += event.delta
    return {name: text.strip() for name, text in seen.items()}
