"""Text and token ids are parsed in step where a stop string holds the text back.

Symptom: a request with a ``stop`` string streams pieces of tags from a healthy model (``<too``, ``ink>``, ``call>``),
and tool calls are lost, although every tag is its special token.

Cause: with a stop string the detokenizer holds ``max(len(stop)) - 1`` characters back, and the ids of the same
delta run ahead of its text. ``DelegatingParser.parse_delta`` and the parsers behind it pair the two.

Change: where the first tokens of a stream show that its text lags, text and ids are handed on up to the same token
boundary, in front of ``parse_delta``. All text comes out, the rest with the last delta. Streams whose text does not
lag are not touched.

Risk: in such a stream the part of a token that was already released waits for the rest of the token.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from engine_overlay.engines import Engine
from engine_overlay.record import Finding, Outcome, Patch, Range, Target
from engine_overlay.text import handoff
from engine_overlay.text.in_step import in_front_of

_TARGET = "parser.abstract_parser:DelegatingParser.parse_delta"

PATCH = Patch(
    id="text_and_ids_in_step",
    engines={"vllm": Range("0.24.0", "0.33.0"), "aphrodite": Range("0.22.0", "0.24.1")},
    targets=(
        Target(
            path=_TARGET,
            bodies=(
                "44e0b24b5fa5",  # vllm 0.24.0
                "771b0d098cde",  # vllm 0.25.0, 0.25.1
                "ae2bc174380e",  # vllm 0.26.0 to 0.30.0, aphrodite 0.22.0 to 0.24.1
                "f37ce884278a",  # vllm 0.31.0
                "f86be60744c5",  # vllm 0.32.0
                "cdd0d7ecaa52",  # vllm 0.33.0
            ),
        ),
    ),
    reads=(),
    upstream=(
        "https://github.com/vllm-project/vllm/issues/51641",
        "https://github.com/vllm-project/vllm/pull/45413",
    ),
    relationship="workaround",
    # The legacy parsers of older releases have a fault of the same kind, each its own.
    introduced_in={"vllm": "0.24.0", "aphrodite": "0.22.0"},
    fixed_in={"vllm": None, "aphrodite": None},
    superseded_by=None,
    group=None,
    requires=(),
    conflicts=(),
    # It must see the deltas first, as they come from the detokenizer.
    after=("reasoning_handoff",),
    default=True,
    default_reason="only streams whose text lags behind their ids are touched, and those are wrong without it",
    scope=("server",),
    native_alternative="include_stop_str_in_output: true in the request (nothing is held back then)",
    remove_when="the detokenizer or the output processor releases text and ids at the same token boundary",
)


def build(engine: Engine, originals: Mapping[str, Any]) -> Mapping[str, Any]:
    """A wrapper that cuts the deltas before the parser sees them."""
    return {_TARGET: in_front_of(originals[_TARGET])}


_PIECES = ("Hm", ".", "\n\n", "Four")


def probe(engine: Engine) -> Finding:
    """Stream an answer with its special ``</think>``, the text five characters behind its ids."""
    if engine.source("parser.engine.parser_engine") is None:
        return Finding(Outcome.ABSENT, "this release has no parser engine, whose pairing of text and ids this mends")
    tokenizer = handoff.tiny_tokenizer(_PIECES, ("<think>", "</think>"))
    vocabulary = tokenizer.get_vocab()
    protocol = engine.module("entrypoints.openai.chat_completion.protocol")
    request = protocol.ChatCompletionRequest(model="m", messages=[{"role": "user", "content": "2 + 2?"}])
    manager = engine.module("parser.parser_manager").ParserManager
    parser = manager.get_parser(reasoning_parser_name="deepseek_r1")(tokenizer)
    answer = ("Hm", ".", "</think>", "\n\n", "Four", ".")
    whole, sent = "".join(answer), 0
    reasoning = content = ""
    for n, piece in enumerate(answer):
        last = n == len(answer) - 1
        until = len(whole) if last else max(sent, len("".join(answer[: n + 1])) - 5)
        message = parser.parse_delta(
            whole[sent:until], [vocabulary[piece]], request, [vocabulary["<think>"]], finished=last
        )
        sent = until
        if message is not None:
            reasoning += message.reasoning or ""
            content += message.content or ""
    seen = f"with the text 5 characters late: reasoning={reasoning!r} content={content!r}"
    if (reasoning, content) == ("Hm.", "\n\nFour."):
        return Finding(Outcome.ABSENT, seen)
    return Finding(Outcome.PRESENT if whole not in (reasoning, content) else Outcome.UNKNOWN, seen)
