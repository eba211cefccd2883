"""Text and token ids in step for the parser that vllm 0.28 makes of one engine.

Symptom: a request with a ``stop`` string streams pieces of tags from a healthy model, or loses a mention of a tag.

Cause: as for ``text_and_ids_in_step``. Where reasoning and tool parser share an engine, vllm 0.28 uses that engine
alone, and not the ``DelegatingParser`` that the other patch stands in front of.

Change: the same cutting of the deltas, in front of ``ParserEngine.parse_delta``.

Risk: in such a stream the part of a token that was already released waits for the rest of the token.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from engine_overlay.engines import Engine
from engine_overlay.record import Finding, Outcome, Patch, Range, Target
from engine_overlay.text import handoff
from engine_overlay.text.in_step import in_front_of

_TARGET = "parser.engine.parser_engine:ParserEngine.parse_delta"

PATCH = Patch(
    id="text_and_ids_in_step_unified",
    engines={"vllm": Range("0.28.0", "0.28.0")},
    targets=(Target(path=_TARGET, bodies=("3ce341e7cd01",)),),
    reads=(Target(path="parser.parser_manager:ParserManager.get_parser", bodies=("493318e6d44f",)),),
    upstream=("https://github.com/vllm-project/vllm/issues/51641",),
    relationship="workaround",
    introduced_in={"vllm": "0.28.0"},
    fixed_in={"vllm": "0.29.0"},
    superseded_by=None,
    group=None,
    requires=(),
    conflicts=(),
    after=(),
    default=True,
    default_reason="only streams whose text lags behind their ids are touched, and those are wrong without it",
    scope=("server",),
    native_alternative="include_stop_str_in_output: true in the request (nothing is held back then)",
    remove_when="vllm 0.28.0 is no longer supported",
)


def build(engine: Engine, originals: Mapping[str, Any]) -> Mapping[str, Any]:
    """A wrapper that cuts the deltas before the parser sees them."""
    return {_TARGET: in_front_of(originals[_TARGET])}


_PIECES = ("Mark", " `", "</", "think", ">", "` it", ".", "\n\n", "Four")
_ANSWER = ("Mark", " `", "</", "think", ">", "` it", ".", "</think>", "\n\n", "Four", ".")
_CUTS = (1, 7, 3)


def probe(engine: Engine) -> Finding:
    """Stream reasoning with a mention of ``</think>`` and then the special one, the text three characters late."""
    path = engine.source("parser.parser_manager")
    if path is None or "_get_parser_engine_cls" not in path.read_text(encoding="utf-8"):
        return Finding(Outcome.ABSENT, "this release never makes a parser of one engine alone")
    tokenizer = handoff.tiny_tokenizer(_PIECES, ("<think>", "</think>", "<tool_call>", "</tool_call>"))
    vocabulary = tokenizer.get_vocab()
    protocol = engine.module("entrypoints.openai.chat_completion.protocol")
    request = protocol.ChatCompletionRequest(model="m", messages=[{"role": "user", "content": "?"}])
    manager = engine.module("parser.parser_manager").ParserManager
    names = {"reasoning_parser_name": "qwen3", "tool_parser_name": "qwen3_coder"}
    parser = manager.get_parser(**names, enable_auto_tools=True)(tokenizer)
    whole, sent, at = "".join(_ANSWER), 0, 0
    reasoning = content = ""
    for n, size in enumerate(_CUTS):
        pieces = _ANSWER[at : at + size]
        at += size
        last = n == len(_CUTS) - 1
        until = len(whole) if last else max(sent, len("".join(_ANSWER[:at])) - 3)
        ids = [vocabulary[piece] for piece in pieces]
        message = parser.parse_delta(whole[sent:until], ids, request, [vocabulary["<think>"]], finished=last)
        sent = until
        reasoning += (message.reasoning if message else None) or ""
        content += (message.content if message else None) or ""
    evidence = f"with the text 3 characters late: reasoning={reasoning!r} content={content!r}"
    right = (reasoning, content) == ("Mark `</think>` it.", "\n\nFour.")
    return Finding(Outcome.ABSENT if right else Outcome.PRESENT, evidence)
