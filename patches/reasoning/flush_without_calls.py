"""What a reasoning parser holds at the end of the reasoning is text, and never the beginning of a call.

Symptom: minimax_m2, ``</think>`` and the beginning of a call in one delta that ends with ``<invoke name=``: that tag
is missing from the text, and the call comes out as content.

Cause: ``ParserEngineReasoningAdapter.finish_streaming`` of vllm 0.24.0 lets the engine look for calls in what it
holds, and what is found there goes nowhere: the tool parser behind it is given the text only.

Change: the engine is told not to look for calls, as in all the adapter's other methods.

Risk: none known; it is what the engine does from 0.25 on.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from engine_overlay.engines import Engine
from engine_overlay.record import Finding, Outcome, Patch, Range, Target
from engine_overlay.text import handoff

_TARGET = "parser.engine.adapters:ParserEngineReasoningAdapter.finish_streaming"

PATCH = Patch(
    id="flush_without_calls",
    engines={"vllm": Range("0.24.0", "0.24.0")},
    targets=(Target(path=_TARGET, bodies=("e0159c1245bf",)),),
    reads=(),
    upstream=(),
    relationship="backport",
    introduced_in={"vllm": "0.24.0"},
    fixed_in={"vllm": "0.25.0"},
    superseded_by=None,
    group=None,
    requires=(),
    conflicts=(),
    after=(),
    default=True,
    default_reason="text and calls are lost without it",
    scope=("server",),
    native_alternative=None,
    remove_when="vllm 0.24.0 is no longer supported",
)


def build(engine: Engine, originals: Mapping[str, Any]) -> Mapping[str, Any]:
    """A wrapper that sets and resets the engine's switch."""
    original = originals[_TARGET]

    def finish_streaming(self: Any) -> Any:
        before = self._parser_engine.skip_tool_parsing
        self._parser_engine.skip_tool_parsing = True
        try:
            return original(self)
        finally:
            self._parser_engine.skip_tool_parsing = before

    return {_TARGET: finish_streaming}


_MARKERS = ("<think>", "</think>", "<minimax:tool_call>", "</minimax:tool_call>")


def probe(engine: Engine) -> Finding:
    """End the reasoning of a MiniMax M2 parser in a delta that ends with ``<invoke name=``, and flush it."""
    if engine.source("parser.engine.adapters") is None:
        return Finding(Outcome.ABSENT, "this release has no parser engine")
    tokenizer = handoff.tiny_tokenizer(("<invoke name=",), _MARKERS)
    ids = [tokenizer.get_vocab()[piece] for piece in ("</think>", "<invoke name=")]
    manager = engine.module("parser.parser_manager").ParserManager
    parser = manager.get_reasoning_parser("minimax_m2")(tokenizer)
    text = "</think><invoke name="
    deltas = [parser.extract_reasoning_streaming("", text, text, [], ids, ids), parser.finish_streaming()]
    content = "".join(delta.content or "" for delta in deltas if delta is not None)
    evidence = f"behind </think> the flushed text is {content!r}"
    return Finding(Outcome.ABSENT if content == "<invoke name=" else Outcome.PRESENT, evidence)
