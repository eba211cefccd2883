"""The same for the parser that vllm 0.28 makes of one engine: a thinking block closed by the prompt is honoured.

Symptom: the chat template switches thinking off by an empty block and the request does not say so itself: the whole
answer comes out as ``reasoning``, streamed or not.

Cause: where reasoning and tool parser share an engine, vllm 0.28 uses that engine alone, without the
``DelegatingParser`` that asks whether the prompt has ended the reasoning.

Change: the engine asks that itself, and then begins in content.

Risk: none known beyond that of the other releases' stream.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from engine_overlay.engines import Engine
from engine_overlay.record import Finding, Outcome, Patch, Range, Target
from engine_overlay.text import handoff, turns

_PARSER = "parser.engine.parser_engine:ParserEngine"

PATCH = Patch(
    id="thinking_closed_by_prompt_unified",
    engines={"vllm": Range("0.28.0", "0.28.0")},
    targets=(
        Target(path=f"{_PARSER}.parse_delta", bodies=("3ce341e7cd01",)),
        Target(path=f"{_PARSER}.parse", bodies=("e777db254885",)),
        Target(path=f"{_PARSER}._reset", bodies=("89d745ea8fbe",)),
    ),
    reads=(Target(path="parser.parser_manager:ParserManager.get_parser", bodies=("493318e6d44f",)),),
    upstream=("https://github.com/vllm-project/vllm/issues/40816",),
    relationship="different approach",
    introduced_in={"vllm": "0.28.0"},
    fixed_in={"vllm": "0.29.0"},
    superseded_by=None,
    group=None,
    # It lays the prompt ready for answers that are not streamed.
    requires=("thinking_closed_by_prompt",),
    conflicts=(),
    # It looks at the prompt only, so it does not matter to it how the deltas are cut.
    after=("text_and_ids_in_step_unified",),
    default=True,
    default_reason="only answers whose prompt has closed the thinking are touched, and those are lost without it",
    scope=("server",),
    native_alternative='chat_template_kwargs: {"enable_thinking": false} in the request',
    remove_when="vllm 0.28.0 is no longer supported",
)

_PROMPT = "_engine_overlay_prompt_ids"
_CLOSED = "_engine_overlay_prompt_closed"


def build(engine: Engine, originals: Mapping[str, Any]) -> Mapping[str, Any]:
    """Wrappers of the three methods."""
    old_delta, old_parse, old_reset = (originals[f"{_PARSER}.{name}"] for name in ("parse_delta", "parse", "_reset"))

    def closed(self: Any, prompt: Sequence[int]) -> bool:
        ids = list(prompt)
        ended = self._has_reasoning and self.is_reasoning_end(ids)
        return ended and turns.closes(ids, handoff.end_ids(self), handoff.decode_all(self.model_tokenizer))

    def reset(self: Any, initial_state: Any = None) -> None:
        begins = initial_state is None and self.__dict__.get(_CLOSED, False)
        old_reset(self, type(self._engine.state).CONTENT if begins else initial_state)
        if begins:
            self._reasoning_ended = True

    def parse_delta(
        self: Any,
        delta_text: str,
        delta_token_ids: list[int],
        request: Any,
        prompt_token_ids: list[int] | None = None,
        *,
        finished: bool,
    ) -> Any:
        if prompt_token_ids is not None and _CLOSED not in self.__dict__:
            self.__dict__[_CLOSED] = closed(self, prompt_token_ids)
            if self.__dict__[_CLOSED]:
                self._reset()
        return old_delta(self, delta_text, delta_token_ids, request, prompt_token_ids, finished=finished)

    def parse(
        self: Any,
        model_output: str,
        request: Any,
        enable_auto_tools: bool = False,
        model_output_token_ids: Sequence[int] = (),
    ) -> Any:
        self.__dict__[_CLOSED] = closed(self, self.__dict__.get(_PROMPT) or ())
        return old_parse(self, model_output, request, enable_auto_tools, model_output_token_ids)

    return {f"{_PARSER}.parse_delta": parse_delta, f"{_PARSER}.parse": parse, f"{_PARSER}._reset": reset}


_PIECES = ("assistant", "\n", "\n\n", "Four", ".")


def probe(engine: Engine) -> Finding:
    """Serve an answer whose prompt closes the thinking, through Qwen3's reasoning and tool parser together."""
    path = engine.source("parser.parser_manager")
    if path is None or "_get_parser_engine_cls" not in path.read_text(encoding="utf-8"):
        return Finding(Outcome.ABSENT, "this release never makes a parser of one engine alone")
    tokenizer = handoff.tiny_tokenizer(_PIECES, ("<|im_start|>", "<think>", "</think>", "<tool_call>", "</tool_call>"))
    vocabulary = tokenizer.get_vocab()
    prompt = [vocabulary[p] for p in ("<|im_start|>", "assistant", "\n", "<think>", "\n\n", "</think>", "\n\n")]
    ids = [vocabulary["Four"], vocabulary["."]]
    message = handoff.full_message(engine, tokenizer, "qwen3", prompt, "Four.", ids, "qwen3_coder")
    evidence = f"an answer to a prompt that closes the thinking: {message}"
    if message == {"reasoning": None, "content": "Four."}:
        return Finding(Outcome.ABSENT, evidence)
    if message == {"reasoning": "Four.", "content": None}:
        return Finding(Outcome.PRESENT, evidence)
    return Finding(Outcome.UNKNOWN, evidence)
