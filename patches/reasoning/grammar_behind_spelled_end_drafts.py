"""Hold drafts to the grammar that come behind a spelled end of reasoning in the same step.

Symptom: with speculative decoding and structured output (``response_format``, ``tool_choice`` "required"), what is
drafted behind a spelled ``</think>`` in one step is accepted although the grammar forbids it, and the JSON is broken.

Cause: from vLLM 0.25 and Aphrodite 0.22 on ``StructuredOutputManager.grammar_bitmask`` asks the reasoning parser of
each draft whether reasoning ends with it, so that the drafts behind are constrained in the same step. The parser looks
at token ids.

Change: the reasoning parser that ``_get_reasoner`` gives for a request is also asked by text: it answers yes for a
draft with which a spelled end is complete, by the rules of ``grammar_behind_spelled_end``. Where the same token says
more than the end, or what follows must decide whether it is a mention, the drafts of this step stay free, and the
grammar catches up when they are accepted. Releases before constrain no drafts behind any end.

Risk: none beyond that of ``grammar_behind_spelled_end``: the same ends are seen, a step earlier.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from engine_overlay.engines import Engine
from engine_overlay.record import Finding, Outcome, Patch, Range, Target
from engine_overlay.text import gate

_MANAGER = "v1.structured_output:StructuredOutputManager"
_TARGET = f"{_MANAGER}._get_reasoner"

PATCH = Patch(
    id="grammar_behind_spelled_end_drafts",
    engines={"vllm": Range("0.25.0", "0.33.0"), "aphrodite": Range("0.22.0", "0.24.1")},
    targets=(Target(path=_TARGET, bodies=("14a536b74ad3",)),),
    reads=(
        # Asks is_reasoning_end_streaming(ids, [draft]) of each draft; from 0.30 on through _get_constraint_*.
        Target(
            path=f"{_MANAGER}.grammar_bitmask",
            bodies=(
                "0ec5668b89a3",
                "c9e3fa743666",
                "840547d14683",
                "a75fe95fa504",
                "0f11386486d6",
                "c3aad44d02b9",
                "2c0b709051fa",
                "561dc4dd9e50",
                "231f5080ddb2",
                "69ab565c5320",
            ),
        ),
    ),
    upstream=(),
    relationship="different approach",
    introduced_in={"vllm": "0.25.0", "aphrodite": "0.22.0"},
    fixed_in={"vllm": None, "aphrodite": None},
    superseded_by=None,
    group=None,
    requires=(),
    conflicts=(),
    after=(),
    default=True,
    default_reason="without it drafts break an answer that a request asked to be constrained",
    scope=("engine core",),
    native_alternative=None,
    remove_when="the engine core sees an end of reasoning that is spelled",
)


def build(engine: Engine, originals: Mapping[str, Any]) -> Mapping[str, Any]:
    stock = originals[_TARGET]

    def _get_reasoner(self: Any, request: Any) -> Any:
        reasoner = stock(self, request)
        if reasoner is not None and request.structured_output_request.reasoning_ended is False:
            gate.sees_spelled_ends(self, request, reasoner)
        return reasoner

    return {_TARGET: _get_reasoner}


def probe(engine: Engine) -> Finding:
    """Ask the reasoning parser of a request, as grammar_bitmask does, of the last draft of a spelled ``</think>``."""
    if "is_reasoning_end_streaming" not in _asking(engine):
        return Finding(Outcome.ABSENT, "this release does not ask for an end of reasoning among drafts")
    manager, request, step = gate.bare(engine)
    step("Hm", ".")
    ids = [*request.all_token_ids, *(manager.tokenizer.get_vocab()[piece] for piece in ("</", "think", ">"))]
    ended = manager._get_reasoner(request).is_reasoning_end_streaming(ids, ids[-1:])
    seen = f"is_reasoning_end_streaming={ended!r} for 'Hm.' and the drafts '</', 'think', '>'"
    return Finding(Outcome.ABSENT if ended else Outcome.PRESENT, seen)


def _asking(engine: Engine) -> frozenset[str]:
    """The names that the code which lays the mask over drafts uses."""
    manager = engine.module("v1.structured_output").StructuredOutputManager
    names = ("grammar_bitmask", "_get_constraint_start", "_get_constraint_bounds")
    methods = (getattr(manager, name, None) for name in names)
    return frozenset(name for method in methods if method is not None for name in method.__code__.co_names)
