"""Behind the end of reasoning, the tool parser gets the token ids of the text that it is given.

Symptom: a special ``<tool_call>`` that the reasoning only talks about, and then a spelled ``</think>`` in the same
delta: the tag stands in ``content``. Or a real ``<tool_call>`` ends the reasoning, and arrives in the delta before
the name of its tool: the call is lost.

Cause: ``DelegatingParser.parse_delta`` takes the text of the content from the reasoning parser, but its ids from
``extract_content_ids``, which looks for the first end marker among the ids of this delta alone.

Change: the reasoning engine knows how much text it has passed on as content, and that text's ids are taken.

Risk: where the ids do not decode to the text, they are taken as before.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from engine_overlay.engines import Engine
from engine_overlay.record import Finding, Outcome, Patch, Range, Target
from engine_overlay.text import handoff
from engine_overlay.text.whole import Whole

_TARGET = "parser.engine.adapters:ParserEngineReasoningAdapter.extract_content_ids"

PATCH = Patch(
    id="content_token_ids",
    engines={"vllm": Range("0.24.0", "0.33.0"), "aphrodite": Range("0.22.0", "0.24.1")},
    targets=(Target(path=_TARGET, bodies=("cff3429d6f5a",)),),
    reads=(),
    upstream=(),
    relationship="different approach",
    introduced_in={"vllm": "0.24.0", "aphrodite": "0.22.0"},
    fixed_in={"vllm": None, "aphrodite": None},
    superseded_by=None,
    group=None,
    # It keeps account of the text and the ids of the deltas.
    requires=("spelled_markers",),
    conflicts=(),
    after=(),
    default=True,
    default_reason="the tool parser could not tell a special token from its text otherwise",
    scope=("server",),
    native_alternative=None,
    remove_when="the engine cuts text and ids at the same place",
)


def build(engine: Engine, originals: Mapping[str, Any]) -> Mapping[str, Any]:
    """A wrapper that knows where the content of this delta begins."""
    original = originals[_TARGET]

    def extract_content_ids(self: Any, input_ids: list[int]) -> list[int]:
        held = getattr(self._parser_engine._engine, "_overlay_candidates", None)
        if held is None or held.content is None or held.ids[len(held.ids) - len(input_ids) :] != list(input_ids):
            return original(self, input_ids)
        whole = Whole("".join(held.texts), held.ids, self.model_tokenizer.decode)
        ids = whole.ids_of(held.content)
        return ids + held.ids[len(whole.ids) :] if ids or not held.content else original(self, input_ids)

    return {_TARGET: extract_content_ids}


_PIECES = ("The", " tag", " `", "` opens", ".", "</", "think", ">", "\n\n", "Yes")
_ANSWER = ("The", " tag", " `", "<tool_call>", "` opens", ".", "</", "think", ">", "\n\n", "Yes", ".")


def probe(engine: Engine) -> Finding:
    """Stream reasoning that talks about ``<tool_call>`` and ends with a spelled ``</think>``, in one delta."""
    if engine.source("parser.engine.parser_engine") is None:
        return Finding(Outcome.ABSENT, "this release has no parser engine")
    tokenizer = handoff.tiny_tokenizer(_PIECES, ("<think>", "</think>", "<tool_call>", "</tool_call>"))
    vocabulary = tokenizer.get_vocab()
    protocol = engine.module("entrypoints.openai.chat_completion.protocol")
    request = protocol.ChatCompletionRequest(model="m", messages=[{"role": "user", "content": "?"}])
    manager = engine.module("parser.parser_manager").ParserManager
    # nemotron_v3 and qwen3_coder write the same, and never share one engine.
    names = {"reasoning_parser_name": "nemotron_v3", "tool_parser_name": "qwen3_coder"}
    parser = manager.get_parser(**names, enable_auto_tools=True)(tokenizer)
    ids = [vocabulary[piece] for piece in _ANSWER]
    message = parser.parse_delta("".join(_ANSWER), ids, request, [vocabulary["<think>"]], finished=True)
    evidence = f"reasoning={message.reasoning!r} content={message.content!r}" if message else "nothing"
    if message and (message.reasoning, message.content) == ("The tag `<tool_call>` opens.", "\n\nYes."):
        return Finding(Outcome.ABSENT, evidence)
    return Finding(Outcome.PRESENT, evidence)
