"""Switch the grammar of structured output on behind an end of reasoning that the model spelled.

Symptom: with ``tool_choice`` "required" or a named tool, or with ``response_format``, and a reasoning parser, a model
that spells ``</think>`` with ordinary tokens answers with whatever it likes: prose instead of JSON, no call, or a call
that breaks the tool's schema. The answer is 200 and nothing is logged.

Cause: the engine core asks the reasoning parser whether the new *token ids* end reasoning, in
``StructuredOutputManager.should_advance``. A spelled end has no such id, so the grammar is never switched on.

Change: before the original decides, the ids that are new are looked at. Only where the last character of a marker
turns up are they decoded; a marker that is no mention (quotes, inline code, a fence, the middle of a sentence) ends
reasoning, by the rules of the API server. The spelled opener of a call ends it too where the parser's format says so
and the grammar accepts the call. What came behind the end, in the same token or the same step, is given to the
grammar; what it does not accept leaves it at its beginning, so that nothing already said can fail the request. An end
that comes as its special token is left to the engine.

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

_TARGET = "v1.structured_output:StructuredOutputManager.should_advance"

PATCH = Patch(
    id="grammar_behind_spelled_end",
    engines={"vllm": Range("0.18.0", "0.29.0"), "aphrodite": Range("0.20.0", "0.24.1")},
    targets=(
        Target(
            path=_TARGET,
            bodies=(
                "8654ba5fa28c",  # vllm 0.18.0 to 0.20.0, aphrodite 0.20.0
                "17736f1f56d0",  # vllm 0.20.1 to 0.21.0, aphrodite 0.21.0
                "5327432dc961",  # vllm 0.22.0 to 0.24.0
                "c5ac295d73c0",  # vllm 0.25.0 to 0.26.0
                "e8dafec0e2d0",  # aphrodite 0.22.0
                "a6c1dfc4bd6c",  # vllm 0.27.0 to 0.28.0, aphrodite 0.23.0
                "3428bef410cc",  # vllm 0.29.0, aphrodite 0.24.0, 0.24.1
            ),
        ),
    ),
    reads=(
        # Decides by reasoning_ended, and sets it from the prompt before the first token is sampled.
        Target(
            path="v1.structured_output:StructuredOutputManager.should_fill_bitmask",
            bodies=("81d41a6106f7", "cc4e614f99b8", "748ed893e35e"),
        ),
        # reasoning_ended, grammar and structured_output_key of a request.
        Target(
            path="v1.structured_output.request:StructuredOutputRequest",
            bodies=(
                "93c7f412d43e",
                "29eac288b3ec",
                "f5266c5fe0cb",
                "2fa892bbe00e",
                "a1b0be0d1eff",
                "7f251b942ef8",
                "3b5b6fe2acca",
                "77c1f60c498f",
            ),
        ),
    ),
    upstream=(),
    relationship="different approach",
    introduced_in={"vllm": "0.18.0", "aphrodite": "0.20.0"},
    # From vllm 0.30 on accept_tokens decides, and grammar_behind_spelled_end_accept stands in front of that.
    fixed_in={"vllm": "0.30.0", "aphrodite": None},
    superseded_by="grammar_behind_spelled_end_accept",
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

    def should_advance(self: Any, request: Any, *arguments: Any, **named: Any) -> bool:
        structured = request.structured_output_request
        if structured is not None and structured.reasoning_ended is False:
            find = getattr(self, "_get_reasoner", None)
            if gate.ended_now(self, request, find(request) if find else self.reasoner):
                # What came behind the end has been given to the grammar.
                return False
        return stock(self, request, *arguments, **named)

    return {_TARGET: should_advance}


def probe(engine: Engine) -> Finding:
    """Let a request reason, spell ``</think>`` and begin its answer in the same token: does the grammar get that?"""
    manager, request, step = gate.bare(engine)
    if not hasattr(manager, "should_advance"):
        return Finding(Outcome.ABSENT, "this release has no StructuredOutputManager.should_advance")
    for piece in ("Hm", ".", "</", "think", ">{"):
        step(piece)
        manager.should_advance(request)
    structured = request.structured_output_request
    taken = manager.tokenizer.decode(structured.grammar.ids)
    seen = f"reasoning_ended={structured.reasoning_ended!r}, grammar took {taken!r} after 'Hm.</think>{{'"
    return Finding(Outcome.ABSENT if structured.reasoning_ended and taken == "{" else Outcome.PRESENT, seen)
