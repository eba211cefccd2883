"""See the end of reasoning when a model spells it with ordinary tokens, with reasoning parsers that look at ids.

Symptom: with ``--reasoning-parser deepseek_r1`` (or another that is not built on the parser engine) a model that
spells ``</think>`` with sub-word tokens never leaves reasoning in a stream: the whole answer comes as ``reasoning``,
``</think>`` included, ``content`` stays empty, the tool call is lost and the stream ends with ``stop``.

Cause: ``DelegatingParser.parse_delta`` asks the reasoning parser whether the new *token ids* end reasoning, and
these parsers also cut the text only where they see the id.

Change: in the reasoning phase of such a parser the text is watched for the spelled marker. What may still become the
marker is held back, and a marker that is no mention is handed on as a delta of its own with the id of its
special token; the original does all the rest. A marker that comes as its special token stays authoritative; where
a stop string holds its text back, the delta waits for the text. On vLLM 0.24 and 0.25 the same is done for
parsers of the engine when the tool parser is a legacy one, and there the special token is cut out of its delta
too, since the text after it stuck in the reasoning parser's buffer.

Risk: a model that mentions the spelled marker in its reasoning without any sign of quoting ends its reasoning there,
as it does without streaming. Characters that may begin the marker reach the client one or two tokens later.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from packaging.version import Version

from engine_overlay.engines import Engine
from engine_overlay.record import Finding, Outcome, Patch, Range, Target
from engine_overlay.text import handoff
from engine_overlay.text.spelled_end import Piece, SpelledEnd

_TARGET = "parser.abstract_parser:DelegatingParser.parse_delta"

PATCH = Patch(
    id="reasoning_handoff",
    engines={"vllm": Range("0.23.0", "0.33.0"), "aphrodite": Range("0.22.0", "0.24.1")},
    targets=(
        Target(
            path=_TARGET,
            bodies=(
                "a06a666a8842",  # vllm 0.23.0
                "44e0b24b5fa5",  # vllm 0.24.0
                "771b0d098cde",  # vllm 0.25.0, 0.25.1
                "ae2bc174380e",  # vllm 0.26.0 to 0.30.0, aphrodite 0.22.0 to 0.24.1
                "f37ce884278a",  # vllm 0.31.0
                "f86be60744c5",  # vllm 0.32.0
                "cdd0d7ecaa52",  # vllm 0.33.0
            ),
        ),
    ),
    reads=(
        # reasoning_ended, previous_text and previous_token_ids of the stream.
        Target(path="parser.abstract_parser:StreamState", bodies=("e0f981a7be11", "f45d0ef48b2a", "77ef86797974")),
        Target(path="parser.abstract_parser:DelegatingParser._in_reasoning_phase", bodies=("f65dcc0d35a7",)),
        # The markers and their ids, and what the parsers do with them.
        Target(path="reasoning.basic_parsers:BaseThinkingReasoningParser", bodies=("23708aa9b3f4",)),
    ),
    upstream=(),
    relationship="different approach",
    # The fault is older; before these releases parse_delta does not say which delta is the last one, and
    # reasoning_handoff_inline stands in front of the reasoning parsers instead.
    introduced_in={"vllm": "0.23.0", "aphrodite": "0.22.0"},
    fixed_in={"vllm": None, "aphrodite": None},
    superseded_by=None,
    group=None,
    requires=(),
    conflicts=(),
    after=(),
    default=True,
    default_reason="without it such a stream loses its answer and its tool calls",
    scope=("server",),
    native_alternative=None,
    remove_when="the reasoning parsers that are not built on the parser engine decide by text",
)

_STATE = "_engine_overlay_spelled_end"


def build(engine: Engine, originals: Mapping[str, Any]) -> Mapping[str, Any]:
    original = originals[_TARGET]
    stuck = engine.name == "vllm" and engine.release is not None and engine.release < Version("0.26.0")

    def watch(parser: Any) -> SpelledEnd | None:
        """The watcher of a new stream, or None when it is to be left alone."""
        reasoning = parser._reasoning_parser
        of_engine = getattr(reasoning, "engine_based_streaming", False)
        if of_engine:
            tools = parser._tool_parser
            if not stuck or tools is None or getattr(tools, "engine_based_streaming", False):
                return None
        found = handoff.markers(reasoning)
        if found is None:
            return None
        end, start = found
        return SpelledEnd(end, handoff.decoder(parser.model_tokenizer), start, cut_special=of_engine)

    def parse_delta(
        self: Any,
        delta_text: str,
        delta_token_ids: list[int],
        request: Any,
        prompt_token_ids: list[int] | None = None,
        *,
        finished: bool,
    ) -> Any:
        state = self._stream_state
        if state.reasoning_ended or self._reasoning_parser is None:
            handoff.step_aside(self, "parse_delta", parse_delta, original)
            return original(self, delta_text, delta_token_ids, request, prompt_token_ids, finished=finished)
        own = self.__dict__
        watcher = own.get(_STATE, own)
        if watcher is own:
            watcher = own[_STATE] = watch(self)
        if watcher is None:
            handoff.step_aside(self, "parse_delta", parse_delta, original)
            return original(self, delta_text, delta_token_ids, request, prompt_token_ids, finished=finished)
        if watcher.passes(delta_text, delta_token_ids):
            return original(self, delta_text, delta_token_ids, request, prompt_token_ids, finished=finished)
        if not state.prompt_reasoning_checked and prompt_token_ids is not None and not watcher.holding:
            # The original finds out itself with this first delta; it must not be cut before that is known.
            if self.is_reasoning_end(prompt_token_ids):
                own[_STATE] = None
                return original(self, delta_text, delta_token_ids, request, prompt_token_ids, finished=finished)
        pieces = watcher.feed(delta_text, delta_token_ids, state.previous_text, state.previous_token_ids, last=finished)
        if not pieces:
            if not finished:
                return None
            pieces = [Piece("", [])]
        last = len(pieces) - 1
        return handoff.merge(
            original(self, text, ids, request, prompt_token_ids, finished=finished and n == last)
            for n, (text, ids) in enumerate(pieces)
        )

    return {_TARGET: parse_delta}


_PIECES = ("Hm", ".", "</", "think", ">", "\n\n", "Four")
_ANSWER = ("Hm", ".", "</", "think", ">", "\n\n", "Four", ".")


def probe(engine: Engine) -> Finding:
    """Stream a short answer with a spelled ``</think>`` through deepseek_r1: does the answer reach content?"""
    base = engine.module("parser.abstract_parser").DelegatingParser
    if "finished" not in getattr(getattr(base, "parse_delta", None), "__annotations__", {}):
        return Finding(Outcome.ABSENT, "this release has no parse_delta that is told the end of the stream")
    tokenizer = handoff.tiny_tokenizer(_PIECES, ("<think>", "</think>"))
    vocabulary = tokenizer.get_vocab()
    protocol = engine.module("entrypoints.openai.chat_completion.protocol")
    request = protocol.ChatCompletionRequest(model="m", messages=[{"role": "user", "content": "2 + 2?"}])
    manager = engine.module("parser.parser_manager").ParserManager
    parser = manager.get_parser(reasoning_parser_name="deepseek_r1")(tokenizer)
    reasoning = content = ""
    for n, piece in enumerate(_ANSWER):
        message = parser.parse_delta(
            piece, [vocabulary[piece]], request, [vocabulary["<think>"]], finished=n == len(_ANSWER) - 1
        )
        if message is not None:
            reasoning += message.reasoning or ""
            content += message.content or ""
    seen = f"reasoning={reasoning!r} content={content!r}"
    if "</think>" in reasoning and not content:
        return Finding(Outcome.PRESENT, seen)
    if reasoning == "Hm." and content == "\n\nFour.":
        return Finding(Outcome.ABSENT, seen)
    return Finding(Outcome.UNKNOWN, seen)
