"""Give the markup of a tool call back in the content of ``ParserEngine.extract_reasoning``.

Symptom: code that parses a whole answer in two stages, ``extract_reasoning`` and then tool extraction from
the content it returned, gets no call: ``"...</think>\\n\\nSure.<tool_call>...</tool_call>"`` comes back as
content ``"\\n\\nSure."``, or as ``None`` when nothing stands before the call.

Cause: the method runs the full grammar and rebuilds reasoning and content from its events, but looks only
at text and reasoning events. What the grammar recognised as a call is in neither of the two strings.

Change: where the request declares tools, the engine is in its own "skip tool parsing" mode for the length of that
one call: the markup of a call is content, and a call that ends reasoning implicitly still ends it. The registered
adapters always ask in that mode and get exactly what they got before, and so do the stock serving paths, which go
through them. Without declared tools there is no call to lose, and the markup is dropped as before.

Risk: a caller that relied on the markup being gone from the content sees it now; no stock caller does. With
``tool_choice="none"`` it stays in the content until the second stage removes it, as through the adapters.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from engine_overlay.engines import Engine
from engine_overlay.record import Finding, Outcome, Patch, Range, Target

_TARGET = "parser.engine.parser_engine:ParserEngine.extract_reasoning"

PATCH = Patch(
    id="extract_reasoning_tool_events",
    engines={"vllm": Range("0.24.0", "0.33.0"), "aphrodite": Range("0.22.0", "0.24.1")},
    targets=(Target(path=_TARGET, bodies=("a5a9205c26a5",)),),
    reads=(
        # The switch, and the engine's own use of it around this very method.
        Target(path="parser.engine.parser_engine:ParserEngine.skip_tool_parsing", bodies=("5fcf4ed49151",)),
        Target(
            path="parser.engine.adapters:ParserEngineReasoningAdapter._skip_tool_parsing",
            bodies=("4355101d2c19",),
        ),
    ),
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
    default_reason="what the registered adapters return stays the same; other callers lose calls without it",
    scope=("server",),
    native_alternative=None,
    remove_when="ParserEngine.extract_reasoning itself keeps the text of tool events",
)

_CALL = "<tool_call>\n<function=get_weather>\n<parameter=city>\nUlm\n</parameter>\n</function>\n</tool_call>"
_ANSWERS = {
    "after </think>": f"Look it up.</think>\n\n{_CALL}",
    "after text": f"Look it up.</think>\n\nSure.\n{_CALL}",
    "as the end of reasoning": f"Look it up.\n{_CALL}",
}


def probe(engine: Engine) -> Finding:
    """Two stages on the bare Qwen3 engine parser: does the second one still find the call?"""
    if engine.source("parser.engine.parser_engine") is None:
        return Finding(Outcome.ABSENT, "this release has no parser engine")
    from tokenizers import Tokenizer, models
    from transformers import PreTrainedTokenizerFast

    words = ("<unk>", "<think>", "</think>", "<tool_call>", "</tool_call>")
    vocabulary = Tokenizer(models.WordLevel({w: i for i, w in enumerate(words)}, unk_token="<unk>"))
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=vocabulary, unk_token="<unk>")
    protocol = engine.module("entrypoints.openai.chat_completion.protocol")
    request = protocol.ChatCompletionRequest(
        model="m",
        messages=[{"role": "user", "content": "Weather in Ulm?"}],
        tools=[{"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object"}}}],
    )
    parser_class = engine.module("parser.qwen3").Qwen3Parser
    lost = []
    for where, answer in _ANSWERS.items():
        parser = parser_class(tokenizer, request.tools)
        _, content = parser.extract_reasoning(answer, request)
        calls = parser.extract_tool_calls_from_content(content or "", request).tool_calls
        if [c.function.name for c in calls] != ["get_weather"]:
            lost.append(f"call {where}: content {content!r}")
    if lost:
        return Finding(Outcome.PRESENT, "; ".join(lost))
    return Finding(Outcome.ABSENT, f"the second stage finds the call in all {len(_ANSWERS)} answers")


def build(engine: Engine, originals: Mapping[str, Any]) -> Mapping[str, Any]:
    stock = originals[_TARGET]

    def extract_reasoning(self: Any, model_output: str, request: Any) -> tuple[str | None, str | None]:
        if not (getattr(request, "tools", None) or self._tools):
            return stock(self, model_output, request)
        before = self.skip_tool_parsing
        self.skip_tool_parsing = True
        try:
            return stock(self, model_output, request)
        finally:
            self.skip_tool_parsing = before

    return {_TARGET: extract_reasoning}
