"""Switch the grammar of structured output on behind a spelled end of reasoning, in vLLM 0.30 and later.

Symptom: with ``tool_choice`` "required" or a named tool, or with ``response_format``, and a reasoning parser, a model
that spells ``</think>`` with ordinary tokens answers with whatever it likes: prose instead of JSON, no call, or a call
that breaks the tool's schema. The answer is 200 and nothing is logged.

Cause: as for ``grammar_behind_spelled_end``; from vLLM 0.30 on the ids are looked at in
``StructuredOutputManager.accept_tokens``, which also advances the grammar.

Change: the same, in front of ``accept_tokens``: a spelled end that is no mention ends reasoning, and what came behind
it is given to the grammar as far as the grammar wants it. An end that comes as its special token is left to the
engine.

Risk: a model that mentions the spelled marker without any sign of quoting is held to the grammar from there on, where
the API server ends its reasoning too. An end in the middle of a sentence is known one or two tokens later; prose in
these stays in front of the JSON.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from engine_overlay.engines import Engine
from engine_overlay.record import Finding, Outcome, Patch, Range, Target
from engine_overlay.text import gate

_TARGET = "v1.structured_output:StructuredOutputManager.accept_tokens"

PATCH = Patch(
    id="grammar_behind_spelled_end_accept",
    engines={"vllm": Range("0.30.0", "0.33.0")},
    targets=(Target(path=_TARGET, bodies=("cb69f2665499", "09c16f92b632")),),
    reads=(
        Target(path="v1.structured_output:StructuredOutputManager._get_reasoner", bodies=("14a536b74ad3",)),
        # reasoning_ended, grammar and structured_output_key of a request.
        Target(
            path="v1.structured_output.request:StructuredOutputRequest",
            bodies=("8e4b64389f0a", "bf822c51a6c6", "8d53d3e07870"),
        ),
    ),
    upstream=(),
    relationship="different approach",
    introduced_in={"vllm": "0.30.0"},
    fixed_in={"vllm": None},
    superseded_by=None,
    group=None,
    requires=(),
    conflicts=(),
    after=(),
    default=True,
    default_reason="without it the answer that a request asked to be constrained is not",
    scope=("engine core",),
    native_alternative=None,
    remove_when="the engine core sees an end of reasoning that is spelled",
)


def build(engine: Engine, originals: Mapping[str, Any]) -> Mapping[str, Any]:
    stock = originals[_TARGET]

    def accept_tokens(self: Any, request: Any, new_token_ids: list[int]) -> bool:
        structured = request.structured_output_request
        if structured is not None and structured.reasoning_ended is False and new_token_ids:
            if gate.ended_now(self, request, self._get_reasoner(request)):
                return True
        return stock(self, request, new_token_ids)

    return {_TARGET: accept_tokens}


def probe(engine: Engine) -> Finding:
    """Let a request reason, spell ``</think>`` and begin its answer in the same token: does the grammar get that?"""
    manager, request, step = gate.bare(engine)
    if not hasattr(manager, "accept_tokens"):
        return Finding(Outcome.ABSENT, "this release has no StructuredOutputManager.accept_tokens")
    for piece in ("Hm", ".", "</", "think", ">{"):
        manager.accept_tokens(request, step(piece))
    structured = request.structured_output_request
    taken = manager.tokenizer.decode(structured.grammar.ids)
    seen = f"reasoning_ended={structured.reasoning_ended!r}, grammar took {taken!r} after 'Hm.</think>{{'"
    return Finding(Outcome.ABSENT if structured.reasoning_ended and taken == "{" else Outcome.PRESENT, seen)
