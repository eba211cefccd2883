"""What a patch needs to switch a grammar on behind a spelled end of reasoning, in the engine core.

The objects are an engine's, told apart by their attributes alone: nothing here imports one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from types import SimpleNamespace
from typing import Any

from engine_overlay.text import handoff
from engine_overlay.text.end_in_ids import EndInIds, NamesIn, Vocabulary
from engine_overlay.text.reading import Reading, reading_of

_READING = "_engine_overlay_reading"
_WATCH = "_engine_overlay_end"
_VOCABULARIES = "_engine_overlay_vocabularies"


def ended_now(manager: Any, request: Any, reasoner: Any) -> bool:
    """Look at the tokens of ``request`` that are new; whether a spelled end of its reasoning is among them.

    If so, the request's reasoning is marked as ended and the grammar has taken what came behind the end, so that the
    caller has nothing more to do with these tokens. An end that the engine sees itself is left to it.
    """
    structured = request.structured_output_request
    if reasoner is None or structured is None or structured.reasoning_ended is not False:
        return False
    if manager.enable_in_reasoning or structured.grammar is None:
        return False
    watch = watch_of(manager, request, reasoner)
    if watch is None:
        return False
    block = request.output_token_ids
    while (found := watch.feed(block)) is not None:
        if found.special:
            return False
        tail = list(block[found.count :])
        vocabulary = structured.__dict__[_READING].vocabulary
        taken = catch_up(structured.grammar, request.request_id, found.rest, tail, vocabulary)
        if taken or not found.opener:
            structured.reasoning_ended = True
            return True
        # A call that the grammar does not want is no answer.
        watch.dismiss()
    return False


def watch_of(manager: Any, request: Any, reasoner: Any) -> EndInIds | None:
    """What watches the tokens of this request, or None when its reasoning parser is to be left alone."""
    kept = request.structured_output_request.__dict__
    if _WATCH not in kept:
        reading = reading_for(manager, request, reasoner)
        kept[_WATCH] = None
        if reading is not None:
            spec = request.structured_output_request.structured_output_key
            prompt = request.prompt_token_ids or ()
            kept[_WATCH] = reading.watch(NamesIn(lambda: str(spec[1])), lambda: prompt)
    return kept[_WATCH]


def reading_for(manager: Any, request: Any, reasoner: Any) -> Reading | None:
    """The reading of the request's reasoning parser; its own way of asking is kept before it is replaced."""
    kept = request.structured_output_request.__dict__
    if _READING not in kept:
        vocabularies: dict[Any, Vocabulary] = manager.__dict__.setdefault(_VOCABULARIES, {})
        kept[_READING] = reading_of(reasoner, manager.tokenizer, vocabularies)
    return kept[_READING]


def catch_up(grammar: Any, request_id: str, rest: str, tail: list[int], vocabulary: Vocabulary) -> bool:
    """Let the grammar take what came behind the end; whether it wanted all of it.

    ``rest`` came in the same token as the end, ``tail`` after it. Where the grammar does not begin with white space
    that goes first; what it does not want at all leaves it at its beginning.
    """
    ids = [*(vocabulary.encode(rest) if rest else ()), *tail]
    while ids:
        if len(grammar.validate_tokens(ids)) == len(ids):
            return bool(grammar.accept_tokens(request_id, ids))
        if vocabulary.decode(ids[:1]).strip():
            return False
        ids = ids[1:]
    return True


def sees_spelled_ends(manager: Any, request: Any, reasoner: Any) -> None:
    """Let the request's reasoning parser see a spelled end among drafts, where it is asked of them one by one.

    Only an end behind which nothing came in the same token, and which nothing that follows had to decide: the grammar
    must be at its beginning there.
    """
    if "is_reasoning_end_streaming" in vars(reasoner) or reading_for(manager, request, reasoner) is None:
        return
    stock: Callable[..., bool] = reasoner.is_reasoning_end_streaming

    def is_reasoning_end_streaming(input_ids: Sequence[int], delta_ids: Iterable[int]) -> bool:
        delta = list(delta_ids)
        if stock(input_ids, delta):
            return True
        watch = watch_of(manager, request, reasoner)
        if watch is None or not delta:
            return False
        block = input_ids[len(request.prompt_token_ids or ()) :]
        found = watch.copy().feed(block)
        if found is None or found.special or found.opener or found.rest.strip():
            return False
        return found.decided == found.count > len(block) - len(delta)

    reasoner.is_reasoning_end_streaming = is_reasoning_end_streaming


class Taken:
    """For probes: a grammar that takes everything and keeps it."""

    def __init__(self) -> None:
        self.ids: list[int] = []

    def validate_tokens(self, tokens: list[int]) -> list[int]:
        return tokens

    def accept_tokens(self, request_id: str, tokens: list[int]) -> bool:
        self.ids += tokens
        return True

    def is_terminated(self) -> bool:
        return False


PIECES = ("Hm", ".", "</", "think", ">", ">{", "\n\n", "{", "}")
"""For probes: the words of the tokenizer of :func:`bare`."""


def bare(engine: Any, parser: str = "deepseek_r1") -> tuple[Any, Any, Callable[..., list[int]]]:
    """For probes: a manager of the engine's own class with a real reasoning parser, and a request that reasons.

    The third is what appends pieces to the request's tokens as one step.
    """
    tokenizer = handoff.tiny_tokenizer(PIECES, ("<think>", "</think>"))
    vocabulary = tokenizer.get_vocab()
    manager_class = engine.module("v1.structured_output").StructuredOutputManager
    parser_class = engine.module("reasoning").ReasoningParserManager.get_reasoning_parser(parser)
    manager = manager_class.__new__(manager_class)
    none = SimpleNamespace(speculative_config=None, num_speculative_tokens=0)
    manager.tokenizer, manager.enable_in_reasoning = tokenizer, False
    setattr(manager, f"{engine.name}_config", none)
    if hasattr(manager_class, "_get_reasoner"):
        manager.reasoner_cls = parser_class
    else:
        manager.reasoner = parser_class(tokenizer)
    messages = engine.module("v1.structured_output.request")
    params = engine.module("sampling_params").StructuredOutputsParams(json={"type": "object"})
    structured = messages.StructuredOutputRequest(params=params)
    structured.grammar, structured.reasoning_ended = Taken(), False
    prompt = [vocabulary["<think>"]]
    request = SimpleNamespace(
        request_id="r",
        prompt_token_ids=prompt,
        output_token_ids=[],
        all_token_ids=list(prompt),
        structured_output_request=structured,
        use_structured_output=True,
        num_computed_tokens=1,
        num_output_placeholders=0,
    )

    def step(*pieces: str) -> list[int]:
        ids = [vocabulary[piece] for piece in pieces]
        request.num_computed_tokens = len(request.all_token_ids)
        request.output_token_ids += ids
        request.all_token_ids += ids
        return ids

    return manager, request, step
