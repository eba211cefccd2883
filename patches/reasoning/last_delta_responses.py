"""Mark the text of the last delta of a responses stream, for parsers that hold text back.

Symptom: none of its own. On vLLM up to 0.22 and Aphrodite up to 0.21 a parser is not told which delta of a stream
is the last, so text that it holds back until it is clear (``</th`` may become ``</think>``) would be lost when the
stream ends there, for example at ``max_tokens``.

Cause: ``parse_delta`` and the reasoning parsers get text and ids of a delta, and nothing else.

Change: the text of an output with a finish reason becomes a ``LastText``, a ``str`` that says so by its type and
is passed on by the serving code as it is.

Risk: none known; it is a ``str`` in every other respect, and joining it to other text gives a plain one.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

from engine_overlay.engines import Engine
from engine_overlay.record import Finding, Outcome, Patch, Range, Target
from engine_overlay.text import handoff
from engine_overlay.text.spelled_end import LastText

_TARGET = "entrypoints.openai.responses.serving:OpenAIServingResponses._process_simple_streaming_events"

PATCH = Patch(
    id="last_delta_responses",
    engines={"vllm": Range("0.18.0", "0.22.1"), "aphrodite": Range("0.20.0", "0.21.0")},
    targets=(
        Target(
            path=_TARGET,
            bodies=(
                "75d3803e8698",  # vllm 0.18
                "23b4429d7940",  # vllm 0.19
                "a3ff985084e6",  # vllm 0.20, aphrodite 0.20.0
                "c45726ca3505",  # vllm 0.21, 0.22, aphrodite 0.21.0
            ),
        ),
    ),
    reads=(),
    upstream=(),
    relationship="backport",
    introduced_in={"vllm": "0.18.0", "aphrodite": "0.20.0"},
    # parse_delta has the keyword "finished" from these on.
    fixed_in={"vllm": "0.23.0", "aphrodite": "0.22.0"},
    superseded_by="reasoning_handoff",
    group=None,
    requires=(),
    conflicts=(),
    after=(),
    default=True,
    default_reason="reasoning_handoff_inline releases what it holds back by this mark",
    scope=("server",),
    native_alternative=None,
    remove_when="vLLM before 0.23.0 and Aphrodite before 0.22.0 are no longer supported",
)


def build(engine: Engine, originals: Mapping[str, Any]) -> Mapping[str, Any]:
    original = originals[_TARGET]

    def outputs_of(context: Any) -> Any:
        result = getattr(context, "last_output", None)
        return () if result is None else result.outputs

    def process_simple_streaming_events(
        self: Any, request: Any, sampling_params: Any, result_generator: Any, *args: Any, **kwargs: Any
    ) -> Any:
        results = handoff.mark_last(result_generator, outputs_of)
        return original(self, request, sampling_params, results, *args, **kwargs)

    return {_TARGET: process_simple_streaming_events}


def probe(engine: Engine) -> Finding:
    """Run the generator over one finished output: is its text marked when the serving code reads it?"""
    base = engine.module("parser.abstract_parser").DelegatingParser
    if "finished" in getattr(getattr(base, "parse_delta", None), "__annotations__", {}):
        return Finding(Outcome.ABSENT, "this release tells parse_delta which delta is the last")
    serving = engine.module("entrypoints.openai.responses.serving")
    outputs = engine.module("outputs")
    output = outputs.CompletionOutput(
        index=0, text="Four.", token_ids=[5], cumulative_logprob=None, logprobs=None, finish_reason="length"
    )
    result = outputs.RequestOutput(
        request_id="r", prompt=None, prompt_token_ids=[1], prompt_logprobs=None, outputs=[output], finished=True
    )
    context = serving.SimpleContext()
    context.last_output = result
    seen = handoff.text_type_seen(
        serving.OpenAIServingResponses,
        "_process_simple_streaming_events",
        context,
        output,
        request=SimpleNamespace(tools=[], request_id="r"),
        sampling_params=None,
        context=context,
        model_name="m",
        tokenizer=None,
        request_metadata=None,
        created_time=0,
        _increment_sequence_number_and_return=lambda event: event,
    )
    if seen is None:
        return Finding(Outcome.UNKNOWN, "the serving code did not read the output")
    outcome = Outcome.ABSENT if seen is LastText else Outcome.PRESENT
    return Finding(outcome, f"the last delta is a {seen.__name__}")
