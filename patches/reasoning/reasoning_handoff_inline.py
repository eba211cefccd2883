"""See a spelled end of reasoning on the older releases, where the serving code itself asks for it by token ids.

Symptom: a model that spells ``</think>`` with sub-word tokens never leaves reasoning in a stream, in chat
completions and in responses: the whole answer comes as ``reasoning`` and the tool call is lost. Up to vLLM 0.21 a
delta that holds both reasoning and its end also loses its reasoning when tools are in use.

Cause: the serving code (up to vLLM 0.19, and 0.20 and Aphrodite 0.20 and 0.21 for required and named tools) and
``DelegatingParser.parse_delta`` (from vLLM 0.20 on) decide by ``is_reasoning_end(ids of the delta)``, and the
reasoning parsers cut the text only where they see the id.

Change: every reasoning parser that has a single-token end gets a class derived from its own, whose three methods see
the stream with a spelled marker replaced by its special token. What may still become the marker is held back; the
text of a delta before the marker is handed on first, and the rest with the next delta, so that both arrive.

Risk: nothing tells these parsers which delta is the last. last_delta_chat and last_delta_responses mark it; other
callers that stop at a token limit, without an end-of-sequence token, in the middle of what looks like a marker lose
those few characters.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from packaging.version import Version

from engine_overlay.engines import Engine
from engine_overlay.record import Finding, Outcome, Patch, Range, Target
from engine_overlay.text import handoff
from engine_overlay.text.spelled_end import LastText, Piece, SpelledEnd

_TARGET = "reasoning.abs_reasoning_parsers:ReasoningParser.__init__"

PATCH = Patch(
    id="reasoning_handoff_inline",
    engines={"vllm": Range("0.18.0", "0.22.1"), "aphrodite": Range("0.20.0", "0.21.0")},
    targets=(Target(path=_TARGET, bodies=("8a66c0d8d701", "638f15a99ff6")),),
    reads=(
        # How the three methods are called, one after the other, with the same list of ids.
        Target(
            path="entrypoints.openai.chat_completion.serving:OpenAIServingChat.chat_completion_stream_generator",
            bodies=(
                "e801cbc66af2",  # vllm 0.18
                "8d12e6db6b52",  # vllm 0.19
                "ac10bea73472",  # vllm 0.20
                "843ce06a682f",  # vllm 0.21, 0.22
                "13ec266a7814",  # aphrodite 0.20.0
                "74104f6fa23e",  # aphrodite 0.21.0
            ),
        ),
        Target(
            path="entrypoints.openai.responses.serving:OpenAIServingResponses._process_simple_streaming_events",
            bodies=(
                "75d3803e8698",  # vllm 0.18
                "23b4429d7940",  # vllm 0.19
                "a3ff985084e6",  # vllm 0.20, aphrodite 0.20.0
                "c45726ca3505",  # vllm 0.21, 0.22, aphrodite 0.21.0
            ),
        ),
        Target(path="reasoning.basic_parsers:BaseThinkingReasoningParser", bodies=("35d59a63bd0e", "23708aa9b3f4")),
    ),
    upstream=(),
    relationship="different approach",
    introduced_in={"vllm": "0.18.0", "aphrodite": "0.20.0"},
    # Not mended there: from these releases on parse_delta is told the end, and reasoning_handoff does the same.
    fixed_in={"vllm": "0.23.0", "aphrodite": "0.22.0"},
    superseded_by="reasoning_handoff",
    group=None,
    requires=(),
    conflicts=(),
    after=(),
    default=True,
    default_reason="without it such a stream loses its answer and its tool calls",
    scope=("server",),
    native_alternative=None,
    remove_when="vLLM before 0.23.0 and Aphrodite before 0.22.0 are no longer supported",
)

_STREAMS = "_engine_overlay_streams"
_CANONICAL = "_engine_overlay_canonical"


class _Stream:
    """One stream through a reasoning parser: what its own methods have been shown so far."""

    __slots__ = ("ids", "later", "latest", "synced", "text", "watcher")

    def __init__(self, watcher: SpelledEnd) -> None:
        self.watcher = watcher
        self.synced = True
        """Whether the caller's own accumulated text and ids are what has been shown."""
        self.text = ""
        self.ids: list[int] = []
        self.later: list[Piece] = []
        self.latest: Any = None
        """The caller's list of all ids so far; the next call of the same stream brings that very list."""


def _watch(parser: Any, split: bool) -> _Stream | None:
    found = handoff.markers(parser)
    if found is None:
        return None
    end, start = found
    return _Stream(SpelledEnd(end, handoff.decoder(parser.model_tokenizer), start, cut_special=split))


def _next_pieces(stream: _Stream, text: str, ids: Sequence[int], last: bool, split: bool) -> list[Piece]:
    """The pieces to show for a delta; with ``split`` the end never comes in one call with reasoning before it."""
    watcher = stream.watcher
    was_done = watcher.done
    pieces = stream.later + watcher.feed(text, ids, stream.text, stream.ids, last=last)
    stream.later = []
    if split and watcher.done and not was_done and not last:
        end = next((n for n, p in enumerate(pieces) if watcher.end.id in p.ids), 0)
        if any(piece.text for piece in pieces[:end]):
            stream.later, pieces = pieces[end:], pieces[:end]
    return pieces


@functools.cache
def _derived(base: type, split: bool) -> type:
    """A class that shows the methods of ``base`` the stream with its spelled markers replaced."""

    class Handoff(base):  # type: ignore[misc, valid-type]
        def extract_reasoning_streaming(
            self,
            previous_text: str,
            current_text: str,
            delta_text: str,
            previous_token_ids: Sequence[int],
            current_token_ids: Sequence[int],
            delta_token_ids: Sequence[int],
        ) -> Any:
            own = self.__dict__
            own[_CANONICAL] = None
            show = super().extract_reasoning_streaming
            streams: dict[int, _Stream] = own.setdefault(_STREAMS, {})  # the class attribute is only a mark
            stream = streams.pop(id(previous_token_ids), None) if previous_token_ids else _watch(self, split)
            if stream is None or (previous_token_ids and stream.latest is not previous_token_ids):
                return show(
                    previous_text, current_text, delta_text, previous_token_ids, current_token_ids, delta_token_ids
                )
            stream.latest = current_token_ids
            streams[id(current_token_ids)] = stream
            if stream.synced:
                if stream.watcher.passes(delta_text, delta_token_ids):
                    return show(
                        previous_text, current_text, delta_text,
                        previous_token_ids, current_token_ids, delta_token_ids,
                    )  # fmt: skip
                stream.text, stream.ids = previous_text, list(previous_token_ids)
            last = isinstance(delta_text, LastText) or _ends(self.model_tokenizer, delta_token_ids)
            canonical: list[int] = []
            messages = []
            for text, ids in _next_pieces(stream, delta_text, delta_token_ids, last, split):
                before, before_ids = stream.text, stream.ids
                stream.text, stream.ids = before + text, before_ids + ids
                canonical += ids
                messages.append(show(before, stream.text, text, before_ids, stream.ids, ids))
            stream.synced = not (stream.later or stream.watcher.holding or stream.watcher.changed)
            own[_CANONICAL] = (list(delta_token_ids), canonical, stream.ids)
            return handoff.merge(messages)

        def is_reasoning_end(self, input_ids: Sequence[int]) -> bool:
            return super().is_reasoning_end(_shown(self, input_ids))

        def is_reasoning_end_streaming(self, input_ids: Sequence[int], delta_ids: Iterable[int]) -> bool:
            delta_ids = list(delta_ids)
            shown = _shown(self, delta_ids)
            if shown is not delta_ids:
                input_ids = self.__dict__[_CANONICAL][2]
            return super().is_reasoning_end_streaming(input_ids, shown)

        def extract_content_ids(self, input_ids: list[int]) -> list[int]:
            return super().extract_content_ids(_shown(self, input_ids))

    Handoff.__name__, Handoff.__qualname__, Handoff.__module__ = base.__name__, base.__qualname__, base.__module__
    Handoff.__doc__ = base.__doc__
    setattr(Handoff, _STREAMS, None)
    return Handoff


def _shown(parser: Any, ids: Any) -> Any:
    """The ids that stand for ``ids``: of the delta that was just shown, those it was shown with; else themselves."""
    canonical = parser.__dict__.get(_CANONICAL)
    return canonical[1] if canonical is not None and canonical[0] == ids else ids


def _ends(tokenizer: Any, ids: Sequence[int]) -> bool:
    return getattr(tokenizer, "eos_token_id", None) in ids


def build(engine: Engine, originals: Mapping[str, Any]) -> Mapping[str, Any]:
    original = originals[_TARGET]
    # From vLLM 0.22 on the reasoning of a delta that also holds the end is kept.
    split = not (engine.name == "vllm" and engine.release is not None and engine.release >= Version("0.22.0"))

    def __init__(self: Any, tokenizer: Any, *args: Any, **kwargs: Any) -> None:
        original(self, tokenizer, *args, **kwargs)
        # Here and not where parsers are looked up: some are created by others, without a look-up.
        if not hasattr(type(self), _STREAMS):
            self.__class__ = _derived(type(self), split)

    return {_TARGET: __init__}


_PIECES = ("Hm", ".", "</", "think", ">", "\n\n", "Four")
_ANSWER = ("Hm", ".", "</", "think", ">", "\n\n", "Four", ".")


def probe(engine: Engine) -> Finding:
    """Show deepseek_r1 a short answer with a spelled ``</think>`` as the serving code does: is its end seen?"""
    base = engine.module("parser.abstract_parser").DelegatingParser
    if "finished" in getattr(getattr(base, "parse_delta", None), "__annotations__", {}):
        return Finding(Outcome.ABSENT, "this release asks for the end in parse_delta; see reasoning_handoff")
    tokenizer = handoff.tiny_tokenizer(_PIECES, ("<think>", "</think>"))
    vocabulary = tokenizer.get_vocab()
    manager = engine.module("parser.parser_manager").ParserManager
    parser = manager.get_reasoning_parser("deepseek_r1")(tokenizer)
    reasoning = content = text = ""
    ids: list[int] = []
    ended = False
    for piece in _ANSWER:
        delta = [vocabulary[piece]]
        before, before_ids, text, ids = text, ids, text + piece, ids + delta
        message = parser.extract_reasoning_streaming(before, text, piece, before_ids, ids, delta)
        ended = ended or bool(parser.is_reasoning_end(delta))
        if message is not None:
            reasoning += message.reasoning or ""
            content += message.content or ""
    seen = f"reasoning={reasoning!r} content={content!r} end seen: {ended}"
    if "</think>" in reasoning and not content and not ended:
        return Finding(Outcome.PRESENT, seen)
    if (reasoning, content, ended) == ("Hm.", "\n\nFour.", True):
        return Finding(Outcome.ABSENT, seen)
    return Finding(Outcome.UNKNOWN, seen)
