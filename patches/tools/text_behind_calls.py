"""Text behind the last call of an answer is content

Symptom: a model that says something after its tool call ("I look it up.") loses it without streaming.

Cause: ``ParserEngine._events_to_delta`` defers text that follows a call in the same piece to the next one; a whole
answer has no next one.

Change: what is still deferred at the end of a whole answer becomes content, behind the content that is there already.
White space alone stays away, as before. Streams stay as they are: there the next delta brings the text.

Risk: clients see text that they did not see before; it is what the model said.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from engine_overlay.engines import Engine
from engine_overlay.record import Finding, Outcome, Patch, Range, Target
from engine_overlay.serving.stand_in_model import NoVocabulary

_PARSER = "parser.engine.parser_engine:ParserEngine"
_WHOLE = "_overlay_whole_answer"
_DELTA, _PASS = f"{_PARSER}._events_to_delta", f"{_PARSER}._single_pass_parse"

PATCH = Patch(
    id="text_behind_calls",
    engines={"vllm": Range("0.24.0", "0.33.0"), "aphrodite": Range("0.22.0", "0.24.1")},
    targets=(
        Target(path=_DELTA, bodies=("c2ab3cd973c2", "b07f52cc4d70", "e177993bd2b8")),
        Target(path=_PASS, bodies=("8325a638cb9b", "1f1454f4c7c0")),
    ),
    reads=(),
    upstream=(),
    relationship="different approach",
    introduced_in={"vllm": "0.24.0", "aphrodite": "0.22.0"},
    fixed_in={"vllm": None, "aphrodite": None},
    superseded_by=None,
    group=None,
    requires=(),
    conflicts=(),
    after=(),
    default=True,
    default_reason="text of the answer is not lost, and answers without such text are unchanged",
    scope=("server",),
    native_alternative=None,
    remove_when="the engine gives out deferred content at the end of an answer",
)


def build(engine: Engine, originals: Mapping[str, Any]) -> Mapping[str, Any]:
    message = engine.module("parser.engine.parser_engine").DeltaMessage
    old_delta, old_pass = originals[_DELTA], originals[_PASS]

    def events_to_delta(self: Any, events: list[Any], finished: bool = False) -> Any:
        delta = old_delta(self, events, finished)
        # White space is deferred where no call came, too: at the very end the engine drops it.
        if self.__dict__.get(_WHOLE) and self._tool_slots and self._deferred_content.strip():
            delta = delta if delta is not None else message()
            delta.content = (delta.content or "") + self._deferred_content
            self._deferred_content = ""
        return delta

    def single_pass_parse(self: Any, *args: Any, **kwargs: Any) -> Any:
        setattr(self, _WHOLE, True)
        try:
            return old_pass(self, *args, **kwargs)
        finally:
            delattr(self, _WHOLE)

    return {_DELTA: events_to_delta, _PASS: single_pass_parse}


def probe(engine: Engine) -> Finding:
    """Parse one whole answer with text behind its call by the engine's Qwen3 parser."""
    if engine.source("parser.engine.parser_engine") is None:
        return Finding(Outcome.ABSENT, "this release has no parser engine")
    parser = engine.module("parser.qwen3").Qwen3Parser(NoVocabulary(), None)
    call = "<tool_call>\n<function=f>\n<parameter=a>\nx\n</parameter>\n</function>\n</tool_call>"
    _, content, found = parser._single_pass_parse(f"</think>One.\n{call}\nTwo.", ())
    evidence = f"an answer with text before and behind its call has the content {content!r}"
    if not found.tools_called or "One." not in (content or ""):
        return Finding(Outcome.UNKNOWN, evidence)
    return Finding(Outcome.ABSENT if content.endswith("Two.") else Outcome.PRESENT, evidence)
