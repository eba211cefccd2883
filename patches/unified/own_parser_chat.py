"""Chat completions through one text-true parser, where an engine has no parser engine.

Symptom: with ``--reasoning-parser qwen3 --tool-call-parser qwen3_coder`` (or hermes, deepseek_r1, glm45, kimi_k2,
minimax_m2) a model that spells ``</think>`` or ``<tool_call>`` with sub-word tokens loses its answer and its calls in
a stream; the same model that only mentions a tag loses text; ``tool_choice: "required"`` with the model's own markup
ends with ``tool_calls`` and an empty list.

Cause: vLLM up to 0.23 and Aphrodite up to 0.21 have separate reasoning and tool parsers, each with rules of its own,
joined by a gate that goes by token ids; without streaming the same parsers go by the bare text.

Change: the outputs of the engine are parsed as they arrive, by one parser that reads the whole format, and the
serving code gets stand-ins that hand out the result. What stays: everything else the serving code does (usage, log
probabilities, tool choice, ids, finish reasons), guided decoding and its schemas, and parsers that are not listed or
that a user has registered under a listed name.

Risk: the parser is the overlay's, so white space at the edges of texts, and how arguments are cut into deltas, differ
from the stock parsers.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

from engine_overlay.engines import Engine
from engine_overlay.record import Finding, Outcome, Patch, Range, Target
from engine_overlay.serving import chat, names

_CHAT = "entrypoints.openai.chat_completion.serving:OpenAIServingChat"
_STREAM = f"{_CHAT}.chat_completion_stream_generator"
_FULL = f"{_CHAT}.chat_completion_full_generator"

PATCH = Patch(
    id="own_parser_chat",
    engines={"vllm": Range("0.18.0", "0.23.0"), "aphrodite": Range("0.20.0", "0.21.0")},
    targets=(
        Target(
            path=_STREAM,
            bodies=(
                "e801cbc66af2",  # vllm 0.18
                "8d12e6db6b52",  # vllm 0.19
                "ac10bea73472",  # vllm 0.20
                "843ce06a682f",  # vllm 0.21, 0.22
                "43873e09bfc4",  # vllm 0.23
                "13ec266a7814",  # aphrodite 0.20.0
                "74104f6fa23e",  # aphrodite 0.21.0
            ),
        ),
        Target(
            path=_FULL,
            bodies=(
                "fac95ca498a2",  # vllm 0.18
                "ec3833499726",  # vllm 0.19
                "3cf03070ec04",  # vllm 0.20
                "e4ad86f66f41",  # vllm 0.21
                "6658d9332ff4",  # vllm 0.22
                "d72fb7f4520b",  # vllm 0.23
                "b61f42f235b9",  # aphrodite 0.20.0
                "aa7d818452f2",  # aphrodite 0.21.0
            ),
        ),
    ),
    reads=(),
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
    after=("last_delta_chat",),
    default=True,
    default_reason="without it streams lose answers and calls; parsers that are not listed stay as they are",
    scope=("server",),
    native_alternative=None,
    remove_when="vLLM before 0.24.0 and Aphrodite before 0.22.0 are no longer supported",
)


def build(engine: Engine, originals: Mapping[str, Any]) -> Mapping[str, Any]:
    stream, full = originals[_STREAM], originals[_FULL]
    stream_signature, full_signature = inspect.signature(stream), inspect.signature(full)

    def chat_completion_stream_generator(self: Any, *args: Any, **kwargs: Any) -> Any:
        call = chat.stream_call(engine, stream_signature, self, args, kwargs)
        if call is None:
            return stream(self, *args, **kwargs)
        return stream(call[0], **call[1])

    async def chat_completion_full_generator(self: Any, *args: Any, **kwargs: Any) -> Any:
        call = chat.full_call(engine, full_signature, self, args, kwargs)
        if call is None:
            return await full(self, *args, **kwargs)
        return await full(call[0], **call[1])

    return {_STREAM: chat_completion_stream_generator, _FULL: chat_completion_full_generator}


_PIECES = (
    *("I", " see", ".", "</", "think", ">", "\n\n", "<", "tool", "_call", ">", "\n", "<function=f>", "<parameter=x>"),
    *("1", "</parameter>", "</function>", "</", "tool", "_call", ">"),
)


def probe(engine: Engine) -> Finding:
    """Send an answer with spelled markers and a call through both generators, behind the parsers for Qwen3."""
    if names.has_parser_engine(engine):
        return Finding(Outcome.ABSENT, "this release has a parser engine")
    from engine_overlay.serving import probing

    server = probing.ChatServer(engine, *names.for_probe(engine), _PIECES)
    seen = {"stream": server.stream(_PIECES), "full": server.full(_PIECES)}
    right = {"reasoning": "I see.", "content": "", "calls": [["f", '{"x": 1}']], "finish_reason": "tool_calls"}
    outcome = Outcome.ABSENT if all(answer == right for answer in seen.values()) else Outcome.PRESENT
    return Finding(outcome, str(seen))
