"""What a patch needs to put :class:`~engine_overlay.text.spelled_end.SpelledEnd` in front of a reasoning parser.

The objects are an engine's, told apart by their attributes alone: nothing here imports one.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from typing import Any

from engine_overlay.text.spelled_end import Decode, LastText, Marker

_END = (("reasoning_end_str", "end_token", "_end_token", "think_end_token"), "end")
# Parsers that read the text themselves keep the end as a sequence of ordinary tokens, or have a text buffer or filter.
_SEQUENCES = ("think_end_rest_token_ids", "_end_token_ids", "melody_streaming")
_ASIDE = "_engine_overlay_aside"
_START = (("reasoning_start_str", "start_token", "_start_token", "think_start_token"), "start")


def decoder(tokenizer: Any) -> Decode:
    """The :data:`Decode` of an engine's tokenizer."""

    def decode(ids: list[int], skip_special: bool) -> str:
        return tokenizer.decode(ids, skip_special_tokens=skip_special)

    return decode


def decode_all(tokenizer: Any) -> Callable[[list[int]], str]:
    """Token ids -> text, special tokens included; no text for a tokenizer that cannot decode."""
    decode = getattr(tokenizer, "decode", None)
    return decode if decode is not None else lambda ids: ""


def markers(parser: Any) -> tuple[Marker, Marker | None] | None:
    """(end, start) of a reasoning parser that decides by token ids; start is None when it has none.

    None when the parser must be left alone: it treats everything as content, or it has no end that is a single
    token, or it looks for the end in the text itself.
    """
    inner = getattr(parser, "_parser", None)
    if hasattr(inner, "extract_reasoning_streaming"):
        return markers(inner)
    if getattr(parser, "_identity_parser", None) is not None:
        return None
    if any(hasattr(parser, name) for name in _SEQUENCES) or hasattr(getattr(parser, "buffer", None), "think_end"):
        return None
    end = _marker(parser, *_END)
    return None if end is None else (end, _marker(parser, *_START))


def end_ids(parser: Any) -> set[tuple[int, ...]]:
    """What ends reasoning in a prompt for this reasoning parser: each end as the ids that spell it."""
    sequence = getattr(parser, "_end_token_ids", None)
    if isinstance(sequence, tuple | list) and sequence:
        return {tuple(sequence)}
    inner = getattr(parser, "_parser_engine", parser)
    ids = set(getattr(inner, "_reasoning_end_token_ids", ()))
    ids |= {getattr(inner, "_reasoning_end_token_id", None), getattr(parser, "end_token_id", None)}
    return {(i,) for i in ids if isinstance(i, int)}


def _marker(parser: Any, names: tuple[str, ...], kind: str) -> Marker | None:
    text = next((t for t in (getattr(parser, n, None) for n in names) if isinstance(t, str) and t), None)
    attributes = (f"{kind}_token_id", f"_{kind}_token_id", f"think_{kind}_token_id")
    token_id = next((i for i in (getattr(parser, n, None) for n in attributes) if isinstance(i, int)), None)
    if text is None and token_id is None:
        return None
    if text is None:
        text = parser.model_tokenizer.decode([token_id], skip_special_tokens=False)
    elif token_id is None:
        token_id = parser.vocab.get(text)
    return Marker(text, token_id) if text and token_id is not None else None


def merge(messages: Iterable[Any]) -> Any:
    """One delta message out of several that follow each other, or None when there is nothing in them.

    Text is joined, and so are the arguments of tool calls with the same index.
    """
    merged = None
    for message in messages:
        if message is None:
            continue
        if merged is None:
            merged = message
            continue
        for field in ("reasoning", "content"):
            more = getattr(message, field, None)
            if more is not None:
                setattr(merged, field, (getattr(merged, field, None) or "") + more)
        if message.tool_calls:
            merged.tool_calls = _join_calls([*(merged.tool_calls or ()), *message.tool_calls])
    return merged


def _join_calls(calls: list[Any]) -> list[Any]:
    by_index: dict[int, Any] = {}
    for call in calls:
        first = by_index.setdefault(call.index, call)
        if first is call:
            continue
        for field in ("id", "type"):
            if getattr(first, field, None) is None and getattr(call, field, None) is not None:
                setattr(first, field, getattr(call, field))
        if call.function is None:
            continue
        if first.function is None:
            first.function = call.function
            continue
        if call.function.name and not first.function.name:
            first.function.name = call.function.name
        if call.function.arguments is not None:
            first.function.arguments = (first.function.arguments or "") + call.function.arguments
    return list(by_index.values())


def step_aside(parser: Any, name: str, mine: Any, below: Any) -> None:
    """Let the rest of this parser's stream call ``below`` directly, if ``mine`` is what ``parser.name`` calls now.

    For a wrapper that has nothing more to do in a stream, so that a healthy one does not pay for it at each token.
    """
    if name not in vars(parser) and getattr(type(parser), name, None) is mine:
        # A bound method kept by the parser would hold the parser itself, until the cycle collector comes.
        with contextlib.suppress(TypeError):  # classes with slots of their own cannot be exchanged
            parser.__class__ = _without(type(parser), name, below)


def _without(base: type, name: str, below: Any) -> type:
    """The class ``base``, with ``below`` for its method ``name``; one for all streams, kept with ``base``."""
    known: dict[tuple[str, Any], type] | None = vars(base).get(_ASIDE)
    if known is None:
        known = {}
        setattr(base, _ASIDE, known)
    if (name, below) not in known:
        same = {key: getattr(base, key) for key in ("__doc__", "__module__", "__qualname__")}
        known[name, below] = type(base)(base.__name__, (base,), {**same, "__slots__": (), name: below})
    return known[name, below]


def tiny_tokenizer(pieces: Iterable[str], special: Iterable[str]) -> Any:
    """A tokenizer with just these words, for probes; it decodes ids to the words without anything between.

    ``special`` become added tokens that are shown in the text, as ``</think>`` is. Needs transformers, which
    every engine brings.
    """
    from tokenizers import AddedToken, Tokenizer, decoders, models
    from transformers import PreTrainedTokenizerFast

    words = ["<unk>", *dict.fromkeys(pieces)]
    model = Tokenizer(models.WordLevel({word: n for n, word in enumerate(words)}, unk_token="<unk>"))
    model.decoder = decoders.Fuse()
    model.add_tokens([AddedToken(word, special=False, normalized=False) for word in special])
    return PreTrainedTokenizerFast(tokenizer_object=model, unk_token="<unk>", clean_up_tokenization_spaces=False)


def mark_last(results: Any, outputs_of: Callable[[Any], Iterable[Any]]) -> Any:
    """The async generator ``results`` again, with the text of every output that has a finish reason marked."""

    async def marked() -> Any:
        async for result in results:
            for output in outputs_of(result):
                if output.finish_reason is not None and not isinstance(output.text, LastText):
                    output.text = LastText(output.text)
            yield result

    return marked()


def text_type_seen(serving: type, method: str, result: Any, output: Any, **arguments: Any) -> type | None:
    """For probes: the type of ``output.text`` once ``serving.method`` has read ``result``; None if it never did.

    The method, an async generator that takes ``result_generator``, runs on a bare instance until it ends or fails:
    only how it passes results on to itself is of interest.
    """
    asked = []

    async def results() -> Any:
        asked.append(result)
        yield result

    bare = type(serving.__name__, (serving,), {"__init__": lambda self: None, "__getattr__": _unset})()
    stream = getattr(bare, method)(result_generator=results(), **arguments)
    with contextlib.suppress(Exception):
        while True:
            # Nothing in it waits, so every step ends at once.
            with contextlib.suppress(StopIteration):
                stream.__anext__().send(None)
    return type(output.text) if asked else None


def full_message(
    engine: Any,
    tokenizer: Any,
    reasoning_parser: str,
    prompt: list[int],
    text: str,
    ids: list[int],
    tool_parser: str | None = None,
) -> dict[str, Any]:
    """For probes: reasoning and content that ``chat_completion_full_generator`` makes of one finished answer.

    Runs on a bare serving object of the engine; raises what that raises.
    """
    serving = engine.module("entrypoints.openai.chat_completion.serving")
    protocol = engine.module("entrypoints.openai.chat_completion.protocol")
    outputs = engine.module("outputs")
    bare_class = type("Serving", (serving.OpenAIServingChat,), {"__init__": lambda self: None, "__getattr__": _unset})
    bare = bare_class()
    bare.response_role = "assistant"
    manager = engine.module("parser.parser_manager").ParserManager
    bare.parser_cls = manager.get_parser(
        reasoning_parser_name=reasoning_parser, tool_parser_name=tool_parser, enable_auto_tools=bool(tool_parser)
    )
    bare.tool_parser = getattr(bare.parser_cls, "tool_parser_cls", None)
    bare.enable_auto_tools = bool(tool_parser)
    request = protocol.ChatCompletionRequest(model="m", messages=[{"role": "user", "content": "?"}])
    completion = outputs.CompletionOutput(
        index=0, text=text, token_ids=ids, cumulative_logprob=None, logprobs=None, finish_reason="stop"
    )
    output = outputs.RequestOutput(
        request_id="r",
        prompt=None,
        prompt_token_ids=prompt,
        prompt_logprobs=None,
        outputs=[completion],
        finished=True,
    )

    async def results() -> Any:
        yield output

    answer = bare.chat_completion_full_generator(
        request=request,
        result_generator=results(),
        request_id="r",
        model_name="m",
        conversation=[],
        tokenizer=tokenizer,
        request_metadata=serving.RequestResponseMetadata(request_id="r"),
        parser=bare.parser_cls(tokenizer),
    )
    try:
        # Nothing in it waits, so the first step is the last.
        answer.send(None)
    except StopIteration as done:
        message = done.value.choices[0].message
        return {"reasoning": message.reasoning or None, "content": message.content or None}
    raise RuntimeError("the serving code waits for something")


def _unset(self: object, name: str) -> None:
    if name.startswith("__"):
        raise AttributeError(name)
