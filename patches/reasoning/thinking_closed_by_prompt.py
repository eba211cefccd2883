"""Without streaming, a thinking block that the prompt has closed already is honoured.

Symptom: the chat template switches thinking off by an empty block (``<think>\\n\\n</think>``) and the request does not
say so itself: the whole answer comes out as ``reasoning`` and ``content`` is empty. Streamed, it is right.

Cause: ``DelegatingParser.parse`` is not told the prompt, and parsers that begin in reasoning stay in it.

Change: the chat serving code's parser learns the ids of the prompt, and answers of such a prompt have no reasoning.
The question is the one that ``parse_delta`` asks for a stream.

Risk: none known beyond that of the stream.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

from engine_overlay.engines import Engine
from engine_overlay.record import Finding, Outcome, Patch, Range, Target
from engine_overlay.text import handoff, turns

_PARSE = "parser.abstract_parser:DelegatingParser.parse"
_FULL = "entrypoints.openai.chat_completion.serving:OpenAIServingChat.chat_completion_full_generator"

PATCH = Patch(
    id="thinking_closed_by_prompt",
    engines={"vllm": Range("0.24.0", "0.32.0"), "aphrodite": Range("0.22.0", "0.24.1")},
    targets=(
        Target(path=_PARSE, bodies=("65c47360fd78", "fee025d0f36a")),
        Target(
            path=_FULL,
            bodies=(
                "43f4a3ea2f8f",  # vllm 0.24.0
                "bf0bbf37bc40",  # vllm 0.25.0, 0.25.1
                "ed4a59a39472",  # vllm 0.26.0
                "bed27ca72d86",  # vllm 0.27.0, 0.27.1
                "05ec9209efb6",  # vllm 0.28.0
                "f32439000226",  # vllm 0.29.0, 0.30.0, aphrodite 0.24.0, 0.24.1
                "c9a74aab82f5",  # vllm 0.31.0
                "b64dbfeb80eb",  # vllm 0.32.0
                "83dd91236bac",  # aphrodite 0.22.0
                "9fe8a7e75be5",  # aphrodite 0.23.0
            ),
        ),
    ),
    reads=(
        Target(
            path="parser.abstract_parser:DelegatingParser._extract_tool_calls",
            bodies=("8e36983d26f6", "1cff53747e63", "a0dabcc89ba3", "e0236933e69b", "ed63ebef871d"),
        ),
    ),
    upstream=("https://github.com/vllm-project/vllm/issues/40816",),
    relationship="backport",
    # Older releases parse in their serving code.
    introduced_in={"vllm": "0.24.0", "aphrodite": "0.22.0"},
    fixed_in={"vllm": "0.33.0", "aphrodite": None},
    superseded_by=None,
    group=None,
    requires=(),
    conflicts=(),
    # It decides before the ids are handed on.
    after=("full_with_token_ids", "tool_half_serving"),
    default=True,
    default_reason="only answers whose prompt has closed the thinking are touched, and those are lost without it",
    scope=("server",),
    native_alternative='chat_template_kwargs: {"enable_thinking": false} in the request',
    remove_when="the serving code tells the parser the prompt (vllm 0.33.0)",
)

_PROMPT = "_engine_overlay_prompt_ids"


def build(engine: Engine, originals: Mapping[str, Any]) -> Mapping[str, Any]:
    """A wrapper that lets the parser know the prompt, and one that uses it."""
    old_parse, old_full = originals[_PARSE], originals[_FULL]
    signature = inspect.signature(old_full)

    async def full(*args: Any, **kwargs: Any) -> Any:
        given = signature.bind(*args, **kwargs)
        parser, results = (given.arguments.get(name) for name in ("parser", "result_generator"))
        if parser is not None and results is not None:
            given.arguments["result_generator"] = noting(results, parser)
        return await old_full(*given.args, **given.kwargs)

    async def noting(results: Any, parser: Any) -> Any:
        async for result in results:
            setattr(parser, _PROMPT, result.prompt_token_ids)
            yield result

    def parse(
        self: Any,
        model_output: str,
        request: Any,
        enable_auto_tools: bool = False,
        model_output_token_ids: Sequence[int] = (),
    ) -> Any:
        prompt = list(self.__dict__.get(_PROMPT) or ())
        reasoning = self._reasoning_parser
        # Parsers for which no thinking is the rule say so of every prompt; that is no closed block.
        closed = prompt and reasoning is not None and self.is_reasoning_end(prompt)
        if not closed or not turns.closes(prompt, handoff.end_ids(reasoning), handoff.decode_all(self.model_tokenizer)):
            return old_parse(self, model_output, request, enable_auto_tools, model_output_token_ids)
        self._reasoning_parser = None
        try:
            return old_parse(self, model_output, request, enable_auto_tools, model_output_token_ids)
        finally:
            self._reasoning_parser = reasoning

    return {_PARSE: parse, _FULL: full}


_PIECES = ("assistant", "\n", "\n\n", "Four", ".")


def probe(engine: Engine) -> Finding:
    """Serve an answer whose prompt closes the thinking, with the engine's own chat serving code."""
    if engine.source("parser.engine.parser_engine") is None:
        return Finding(Outcome.ABSENT, "this release has no parser engine, and its serving code parses by itself")
    tokenizer = handoff.tiny_tokenizer(_PIECES, ("<|im_start|>", "<|im_end|>", "<think>", "</think>"))
    vocabulary = tokenizer.get_vocab()
    prompt = [vocabulary[piece] for piece in ("<|im_start|>", "assistant", "\n", "<think>", "\n\n", "</think>", "\n\n")]
    message = handoff.full_message(engine, tokenizer, "qwen3", prompt, "Four.", [vocabulary[p] for p in ("Four", ".")])
    evidence = f"an answer to a prompt that closes the thinking: {message}"
    if message == {"reasoning": None, "content": "Four."}:
        return Finding(Outcome.ABSENT, evidence)
    if message == {"reasoning": "Four.", "content": None}:
        return Finding(Outcome.PRESENT, evidence)
    return Finding(Outcome.UNKNOWN, evidence)
