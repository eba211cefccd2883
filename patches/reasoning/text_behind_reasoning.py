"""Text that comes in one delta with the end of reasoning is not lost when there is no tool parser.

Symptom: with a reasoning parser alone, ``</think>`` and the beginning of the answer in one delta: a ``<`` and what
follows it, or line breaks, are missing from ``content`` (``The tag `ink>` `` for ``The tag `<think>` ``).

Cause: the parser engine holds back what may still become a marker. ``DelegatingParser.parse_delta`` does not ask it
any more once the reasoning has ended, and what it holds goes to the tool parser, which is not there.

Change: in the delta that ends the reasoning, what the engine holds is added to the content.

Risk: none known.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from engine_overlay.engines import Engine
from engine_overlay.record import Finding, Outcome, Patch, Range, Target
from engine_overlay.text import handoff

_TARGET = "parser.abstract_parser:DelegatingParser.extract_reasoning_streaming"

PATCH = Patch(
    id="text_behind_reasoning",
    engines={"vllm": Range("0.24.0", "0.31.0"), "aphrodite": Range("0.22.0", "0.24.1")},
    targets=(Target(path=_TARGET, bodies=("2667cde8606a",)),),
    reads=(),
    upstream=(),
    relationship="backport",
    introduced_in={"vllm": "0.24.0", "aphrodite": "0.22.0"},
    fixed_in={"vllm": "0.32.0", "aphrodite": None},
    superseded_by=None,
    group=None,
    requires=(),
    conflicts=(),
    after=(),
    default=True,
    default_reason="text is lost without it",
    scope=("server",),
    native_alternative=None,
    remove_when="the engine passes on what the reasoning parser held (vllm 0.32.0)",
)


def build(engine: Engine, originals: Mapping[str, Any]) -> Mapping[str, Any]:
    """A wrapper that adds what is held when the reasoning has ended."""
    original = originals[_TARGET]

    def extract_reasoning_streaming(self: Any, *args: Any, **kwargs: Any) -> Any:
        delta = original(self, *args, **kwargs)
        reasoning = self._reasoning_parser
        if self._tool_parser is None and getattr(reasoning, "engine_based_streaming", False):
            if reasoning.has_engine_confirmed_reasoning_end():
                return handoff.merge((delta, reasoning.finish_streaming()))
        return delta

    return {_TARGET: extract_reasoning_streaming}


_PIECES = ("Hm", ".", "\n\n", "<", "b")
_DELTAS = (("Hm", "."), ("</think>", "\n\n", "<"), ("b",))


def probe(engine: Engine) -> Finding:
    """Stream an answer that begins with ``<``, in one delta with the special ``</think>``."""
    if engine.source("parser.engine.parser_engine") is None:
        return Finding(Outcome.ABSENT, "this release has no parser engine")
    tokenizer = handoff.tiny_tokenizer(_PIECES, ("<think>", "</think>"))
    vocabulary = tokenizer.get_vocab()
    protocol = engine.module("entrypoints.openai.chat_completion.protocol")
    request = protocol.ChatCompletionRequest(model="m", messages=[{"role": "user", "content": "?"}])
    manager = engine.module("parser.parser_manager").ParserManager
    parser = manager.get_parser(reasoning_parser_name="qwen3")(tokenizer)
    content = ""
    for n, pieces in enumerate(_DELTAS):
        ids = [vocabulary[piece] for piece in pieces]
        last = n == len(_DELTAS) - 1
        message = parser.parse_delta("".join(pieces), ids, request, [vocabulary["<think>"]], finished=last)
        content += (message.content if message else None) or ""
    evidence = f"</think>, two line breaks and '<b' give the content {content!r}"
    return Finding(Outcome.ABSENT if content.strip() == "<b" else Outcome.PRESENT, evidence)
