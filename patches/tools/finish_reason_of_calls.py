"""The finish reason is ``tool_calls`` only when calls were made and the model ended by itself.

Symptom: an answer that ``max_tokens`` cut off inside of a call ends with the finish reason ``tool_calls``, so a client
takes the half argument for the whole one and runs it; and an answer without any call may end with ``tool_calls`` and
an empty list.

Cause: the chat serving code puts ``tool_calls`` in place of the engine's own finish reason whenever a tool parser has
found a call, or the beginning of one, whatever that reason was.

Change: where the serving code says ``tool_calls``, the engine's own reason is kept if it is not ``stop``, or if the
choice carries no call. What stays: every other finish reason, and requests without tools, which are not looked at.

Risk: clients that wait for ``tool_calls`` to run a call do not run one that was cut off; that is the purpose.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing
from typing import Any

from engine_overlay.engines import Engine
from engine_overlay.record import Finding, Outcome, Patch, Range, Target

_CHAT = "entrypoints.openai.chat_completion.serving:OpenAIServingChat"
_STREAM = f"{_CHAT}.chat_completion_stream_generator"
_FULL = f"{_CHAT}.chat_completion_full_generator"

PATCH = Patch(
    id="finish_reason_of_calls",
    engines={"vllm": Range("0.18.0", "0.32.0"), "aphrodite": Range("0.20.0", "0.24.1")},
    targets=(
        Target(
            path=_STREAM,
            bodies=(
                "e801cbc66af2",  # vllm 0.18
                "8d12e6db6b52",  # vllm 0.19
                "ac10bea73472",  # vllm 0.20
                "843ce06a682f",  # vllm 0.21, 0.22
                "43873e09bfc4",  # vllm 0.23
                "ab658504b4d5",  # vllm 0.24
                "f7c9802db5cc",  # vllm 0.25
                "2257290709f5",  # vllm 0.26, 0.27, aphrodite 0.23
                "74f363827544",  # vllm 0.28
                "a52a02e5dc56",  # vllm 0.29, 0.30, aphrodite 0.24
                "e73b92ed4f49",  # vllm 0.31
                "a162e6d73b14",  # vllm 0.32
                "13ec266a7814",  # aphrodite 0.20
                "74104f6fa23e",  # aphrodite 0.21
                "cf82c4a5fb71",  # aphrodite 0.22
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
                "43f4a3ea2f8f",  # vllm 0.24
                "bf0bbf37bc40",  # vllm 0.25
                "ed4a59a39472",  # vllm 0.26
                "bed27ca72d86",  # vllm 0.27
                "05ec9209efb6",  # vllm 0.28
                "f32439000226",  # vllm 0.29, 0.30, aphrodite 0.24
                "c9a74aab82f5",  # vllm 0.31
                "b64dbfeb80eb",  # vllm 0.32
                "b61f42f235b9",  # aphrodite 0.20
                "aa7d818452f2",  # aphrodite 0.21
                "83dd91236bac",  # aphrodite 0.22
                "9fe8a7e75be5",  # aphrodite 0.23
            ),
        ),
    ),
    reads=(),
    upstream=(),
    relationship="backport",
    introduced_in={"vllm": "0.18.0", "aphrodite": "0.20.0"},
    fixed_in={"vllm": "0.33.0", "aphrodite": None},
    superseded_by=None,
    group=None,
    requires=(),
    conflicts=(),
    # It looks at what all of them let the serving code say.
    after=("last_delta_chat", "own_parser_chat", "reasoning_handoff_inline", "thinking_closed_by_prompt"),
    default=True,
    default_reason="a call that was cut off is not run, and whole answers are unchanged",
    scope=("server",),
    native_alternative=None,
    remove_when="the serving code keeps the engine's finish reason for calls that were cut off (vllm 0.33.0)",
)

_CALLS, _SAYS = '"tool_calls":[{', '"finish_reason":"tool_calls"'
"""As they stand in a chunk; inside of a JSON string their quotes would be escaped."""


def build(engine: Engine, originals: Mapping[str, Any]) -> Mapping[str, Any]:
    old_stream, old_full = originals[_STREAM], originals[_FULL]
    stream_signature, full_signature = inspect.signature(old_stream), inspect.signature(old_full)

    def noted(signature: inspect.Signature, args: Any, kwargs: Any) -> tuple[inspect.BoundArguments, dict[int, str]]:
        """The arguments with outputs that note their finish reasons by the index of their choice."""
        given = signature.bind(*args, **kwargs)
        reasons: dict[int, str] = {}
        given.arguments["result_generator"] = _noting(given.arguments["result_generator"], reasons)
        return given, reasons

    async def checked(given: inspect.BoundArguments, reasons: dict[int, str]) -> AsyncIterator[str]:
        with_calls: set[int] = set()
        async with aclosing(old_stream(*given.args, **given.kwargs)) as lines:
            async for line in lines:
                if _CALLS in line:
                    with_calls |= {choice["index"] for choice in _choices(line)}
                if _SAYS in line:
                    line = _corrected(line, with_calls, reasons)
                yield line

    def stream(self: Any, request: Any, *args: Any, **kwargs: Any) -> Any:
        if not request.tools:
            return old_stream(self, request, *args, **kwargs)
        return checked(*noted(stream_signature, (self, request, *args), kwargs))

    async def full(self: Any, request: Any, *args: Any, **kwargs: Any) -> Any:
        if not request.tools:
            return await old_full(self, request, *args, **kwargs)
        given, reasons = noted(full_signature, (self, request, *args), kwargs)
        response = await old_full(*given.args, **given.kwargs)
        for choice in getattr(response, "choices", ()):
            if choice.finish_reason == "tool_calls":
                choice.finish_reason = _reason(reasons.get(choice.index), bool(choice.message.tool_calls))
        return response

    return {_STREAM: stream, _FULL: full}


async def _noting(results: Any, reasons: dict[int, str]) -> AsyncIterator[Any]:
    async for result in results:
        for output in result.outputs:
            if output.finish_reason is not None:
                reasons[output.index] = output.finish_reason
        yield result


def _reason(engines_own: str | None, called: bool) -> str:
    return "tool_calls" if called and engines_own in (None, "stop") else engines_own or "stop"


def _choices(line: str) -> list[Any]:
    return json.loads(line.removeprefix("data: ")).get("choices", [])


def _corrected(line: str, with_calls: set[int], reasons: dict[int, str]) -> str:
    # A choice says its finish reason once, in a chunk of its own.
    (index,) = {choice["index"] for choice in _choices(line) if choice.get("finish_reason") == "tool_calls"}
    reason = _reason(reasons.get(index), index in with_calls)
    return line.replace(_SAYS, f'"finish_reason":"{reason}"')


_PIECES = ("I", " see", ".", "</think>", "<tool_call>", "\n", "<function=f>", "\n", "<parameter=x>", "1", "2")


def probe(engine: Engine) -> Finding:
    """Send an answer that ``max_tokens`` cuts inside a call through both generators, behind the parsers for Qwen3."""
    from engine_overlay.serving import probing

    server = probing.ChatServer(engine, "qwen3", "qwen3_coder", _PIECES)
    found = {"stream": server.stream(_PIECES, finish="length"), "full": server.full(_PIECES, finish="length")}
    evidence = f"an answer that is cut off inside a call: {found}"
    reasons = {name: seen["finish_reason"] for name, seen in found.items()}
    if not found["stream"]["calls"]:
        return Finding(Outcome.UNKNOWN, evidence)
    return Finding(Outcome.PRESENT if "tool_calls" in reasons.values() else Outcome.ABSENT, evidence)
