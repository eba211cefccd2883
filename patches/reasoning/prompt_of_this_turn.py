"""A closed thinking block in an earlier turn or in the system prompt does not end the thinking of this one.

Symptom: a system prompt that explains the format (``<mm:think></mm:think>``), or a history with thinking in it: the
whole reasoning of a streamed answer comes out as content, its tags included.

Cause: ``DelegatingParser.parse_delta`` asks the reasoning parser whether the prompt has ended the reasoning already.
Parsers that do not know the turns of the prompt take the last end marker in it, wherever it stands.

Change: where the header of the answer (``assistant``, ``model``, ...) ends the prompt and stands behind that marker,
the parser is asked about the part of the prompt behind the marker only.

Risk: an answer that is continued from the prompt and whose text so far ends with one of these words.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from engine_overlay.engines import Engine
from engine_overlay.record import Finding, Outcome, Patch, Range, Target
from engine_overlay.text import handoff
from engine_overlay.text.turns import behind_last_end

_TARGET = "parser.abstract_parser:DelegatingParser.is_reasoning_end"

PATCH = Patch(
    id="prompt_of_this_turn",
    engines={"vllm": Range("0.24.0", "0.33.0"), "aphrodite": Range("0.22.0", "0.24.1")},
    targets=(Target(path=_TARGET, bodies=("9fe68032554f",)),),
    reads=(),
    upstream=("https://github.com/vllm-project/vllm/issues/46042",),
    relationship="different approach",
    introduced_in={"vllm": "0.24.0", "aphrodite": "0.22.0"},
    fixed_in={"vllm": None, "aphrodite": None},
    superseded_by=None,
    group=None,
    requires=(),
    conflicts=(),
    after=(),
    default=True,
    default_reason="prompts that end with a closed thinking block, or hold none, are answered as before",
    scope=("server",),
    native_alternative=None,
    remove_when="every reasoning parser looks for markers in the last turn of the prompt only",
)


def build(engine: Engine, originals: Mapping[str, Any]) -> Mapping[str, Any]:
    """A wrapper that asks again about the last part of the prompt."""
    original = originals[_TARGET]

    def is_reasoning_end(self: Any, input_ids: list[int]) -> bool:
        ended = original(self, input_ids)
        if not ended or self._reasoning_parser is None:
            return ended
        tail = behind_last_end(
            input_ids, handoff.end_ids(self._reasoning_parser), handoff.decode_all(self.model_tokenizer)
        )
        return ended if tail is None else original(self, tail)

    return {_TARGET: is_reasoning_end}


_PIECES = ("Mark", "thoughts", "with", ":", "assistant", "\n")


def probe(engine: Engine) -> Finding:
    """Ask deepseek_r1's parser about a prompt with an example of a thinking block before the answer's header."""
    if engine.source("parser.engine.parser_engine") is None:
        return Finding(Outcome.ABSENT, "this release has no parser engine, and its serving code asks in another way")
    tokenizer = handoff.tiny_tokenizer(_PIECES, ("<think>", "</think>"))
    vocabulary = tokenizer.get_vocab()
    manager = engine.module("parser.parser_manager").ParserManager
    parser = manager.get_parser(reasoning_parser_name="deepseek_r1")(tokenizer)
    prompt = ("Mark", "thoughts", "with", ":", "<think>", "</think>", "\n", "assistant", "\n")
    ended = parser.is_reasoning_end([vocabulary[piece] for piece in prompt])
    evidence = f"an example of a thinking block before the header of the answer ends its thinking: {ended}"
    return Finding(Outcome.PRESENT if ended else Outcome.ABSENT, evidence)
