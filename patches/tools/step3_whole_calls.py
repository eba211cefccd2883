"""A call of the step3 parser is complete when all of it comes in one delta.

Symptom: with several tokens in a delta (speculative decoding, ``stream_interval``) the streamed arguments of a call
are ``{"city": "Ulm"}{}``, which is no JSON, or are missing.

Cause: ``Step3ToolParser.extract_tool_calls_streaming`` gives one part of what is there and leaves the next to the
next delta, which may never come. At the end the serving code adds the arguments that were not streamed, of which this
parser keeps no account.

Change: it is asked until nothing is left, and what was streamed is noted down where the serving code looks for it.

Risk: none known; a stream of single tokens gives the same parts as before.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

from engine_overlay.engines import Engine
from engine_overlay.record import Finding, Outcome, Patch, Range, Target
from engine_overlay.text import handoff

_MODULE = "tool_parsers.step3_tool_parser"
_TARGET = f"{_MODULE}:Step3ToolParser.extract_tool_calls_streaming"

PATCH = Patch(
    id="step3_whole_calls",
    engines={"vllm": Range("0.18.0", "0.33.0"), "aphrodite": Range("0.20.0", "0.24.1")},
    targets=(Target(path=_TARGET, bodies=("f1682b2d88fa", "dfe10f1adddd")),),
    reads=(),
    upstream=("https://github.com/vllm-project/vllm/issues/55082",),
    relationship="different approach",
    introduced_in={"vllm": "0.18.0", "aphrodite": "0.20.0"},
    fixed_in={"vllm": None, "aphrodite": None},
    superseded_by=None,
    group=None,
    requires=(),
    conflicts=(),
    after=(),
    default=True,
    default_reason="the arguments of such a call are no JSON without it",
    scope=("server",),
    native_alternative=None,
    remove_when="the parser handles all of a delta at once",
)


def build(engine: Engine, originals: Mapping[str, Any]) -> Mapping[str, Any]:
    """A wrapper that repeats the original while there is more to take."""
    original = originals[_TARGET]

    def extract_tool_calls_streaming(
        self: Any,
        previous_text: str,
        current_text: str,
        delta_text: str,
        previous_token_ids: Sequence[int],
        current_token_ids: Sequence[int],
        delta_token_ids: Sequence[int],
        request: Any,
    ) -> Any:
        given = (previous_text, current_text, delta_text, previous_token_ids, current_token_ids, delta_token_ids)
        messages = []
        while (message := original(self, *given, request)) is not None:
            messages.append(message)
            for call in message.tool_calls or ():
                streamed = self.streamed_args_for_tool
                streamed += [""] * (call.index + 1 - len(streamed))
                streamed[call.index] += (call.function.arguments if call.function is not None else None) or ""
        return handoff.merge(messages)

    return {_TARGET: extract_tool_calls_streaming}


class _Tokenizer:
    def get_vocab(self) -> dict[str, int]:
        return {}


_CALL = (
    "<｜tool_calls_begin｜><｜tool_call_begin｜>function<｜tool_sep｜>"
    '<steptml:invoke name="f"><steptml:parameter name="a">x</steptml:parameter></steptml:invoke>'
    "<｜tool_call_end｜><｜tool_calls_end｜>"
)


def probe(engine: Engine) -> Finding:
    """Give the parser a whole call in one delta, and then ask it what was not streamed."""
    if engine.source(_MODULE) is None:
        return Finding(Outcome.ABSENT, "this release has no step3 parser")
    parser = engine.module(_MODULE).Step3ToolParser(_Tokenizer())
    message = parser.extract_tool_calls_streaming("", _CALL, _CALL, [], [], [], SimpleNamespace(tools=[]))
    arguments = "".join((c.function.arguments or "") for c in message.tool_calls or ()) if message else ""
    evidence = f"a call in one delta streams the arguments {arguments!r}"
    if arguments == '{"a": "x"}':
        return Finding(Outcome.ABSENT, evidence)
    return Finding(Outcome.UNKNOWN if arguments else Outcome.PRESENT, evidence)
