"""What a detector found, and what is said of each kind: what it is, why it is probably so, what to do next."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of fault. ``step`` is advice beside that of the overlay, which holds where there are ``patches``: ids of
    patches that mend it in an engine where they fit.
    """

    title: str
    why: str
    step: str
    patches: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Found:
    """``kind`` is a key of :data:`KINDS`; ``said`` tells what was seen; ``piece`` is the literal text of the answer.

    ``field``, ``start`` and ``end`` say where it stands, so that the events that brought it can be shown; without
    them ``events`` has those events.
    """

    kind: str
    said: str
    piece: str = ""
    field: str = ""
    start: int = 0
    end: int = 0
    events: str = ""


_HAND = "the parser cut the text by token ids while the text lagged behind them, or missed a tag spelled in sub-words"

KINDS: dict[str, Kind] = {
    "tag": Kind(
        "a tag, or a part of one, leaked into the answer",
        _HAND,
        'before a server that cannot be patched, "engine-overlay proxy" takes stray tags off',
        ("spelled_markers", "text_and_ids_in_step", "reasoning_handoff", "reasoning_handoff_inline", "own_parser"),
    ),
    "tag in reasoning": Kind(
        "a tag, or a part of one, leaked into the reasoning",
        _HAND,
        "",
        ("spelled_markers", "text_and_ids_in_step", "reasoning_handoff", "reasoning_handoff_inline", "own_parser"),
    ),
    "tag in arguments": Kind(
        "a tag of the model's format leaked into the arguments of a call",
        "the tool parser closed an argument in the wrong place",
        "",
        ("argument_stream", "own_parser"),
    ),
    "thoughts in content": Kind(
        "the model's thoughts arrived as the answer",
        "no reasoning parser took them out, or it is not the one of this model",
        "start the server with the model's --reasoning-parser",
        ("reasoning_handoff", "spelled_markers", "own_parser"),
    ),
    "call as text": Kind(
        "a tool call arrived as text",
        "no tool parser took it, it is not the one of this model, or it did not see a tag spelled in sub-words",
        "start the server with the model's --tool-call-parser",
        ("spelled_markers", "content_token_ids", "own_parser"),
    ),
    "call in reasoning": Kind(
        "a tool call was lost in the reasoning",
        "the end of the reasoning was spelled in sub-words or left out, and the parser waits for its token id",
        "",
        ("reasoning_handoff", "reasoning_handoff_inline", "spelled_markers", "own_parser"),
    ),
    "cut at a quoted tag": Kind(
        "the text was cut where the model only quoted a tag",
        "the parser took a tag between quotes for the real one",
        "",
        ("full_with_token_ids", "special_tokens_in_order", "spelled_markers", "own_parser"),
    ),
    "loop": Kind(
        "the answer repeats itself until the limit of tokens",
        "the model loops: quantisation, a sampling setting, or a chat template that is not the model's",
        "compare temperature, top_p and repetition penalty with the model card, and an unquantised model; "
        "limit thoughts with thinking_token_budget",
    ),
    "empty thoughts": Kind(
        "the answer is one empty thought after the other",
        "the model reopens its thoughts without end; the reasoning parser shows only the tags",
        'set thinking_token_budget; "engine-overlay proxy" ends such streams',
    ),
    "blank deltas": Kind(
        "the stream goes on without saying anything",
        "the model says only white space, or the parser holds everything back",
        'look at the model\'s sampling settings; "engine-overlay proxy" ends such streams',
    ),
    "answer in reasoning": Kind(
        "the answer is empty: all of it is in the reasoning",
        "the end of the reasoning was spelled in sub-words and the parser waits for its token id, or the model never "
        "ended its thoughts",
        "",
        ("reasoning_handoff", "reasoning_handoff_inline", "spelled_markers", "own_parser"),
    ),
    "nothing delivered": Kind(
        "the server counts tokens, but the answer is empty",
        "a parser dropped the text, such as a block of a tool call that it could not read",
        "",
        ("spelled_markers", "text_behind_reasoning", "flush_without_calls", "content_without_markup", "own_parser"),
    ),
    "no calls": Kind(
        'finish_reason is "tool_calls", but there is no call',
        "the parser saw the beginning of a call and could not read the rest",
        "update the engine",
        ("finish_reason_of_calls", "spelled_markers", "own_parser"),
    ),
    "wrong finish": Kind(
        'the answer has calls, but finish_reason is not "tool_calls"',
        "the serving layer decides the reason apart from the parser",
        "clients that wait for tool_calls do nothing with the calls: report it to the server's maintainers",
    ),
    "undeclared call": Kind(
        "a call although the request declares no tools or forbids calls",
        "text of the answer was taken for a call",
        "",
        ("spelled_markers", "own_parser"),
    ),
    "broken call": Kind(
        "a call without a name or an id, or two with the same id",
        "the serving layer put the deltas of a call together wrongly",
        "update the engine; clients cannot answer such a call",
        ("own_parser",),
    ),
    "invalid arguments": Kind(
        "the arguments of a call are no JSON object",
        "the tool parser lost or doubled a part of them while they were streamed, or max_tokens cut the call off and "
        "finish_reason hides it",
        "",
        ("argument_stream", "finish_reason_of_calls", "text_and_ids_in_step", "own_parser"),
    ),
    "wrong type": Kind(
        "an argument has not the type of the tool's schema",
        "the tool parser turns text into JSON without the whole schema, or the model wrote the type wrong and nothing "
        "corrects it",
        "",
        ("argument_types", "own_parser"),
    ),
    "lost arguments": Kind(
        "a call without any of its required arguments",
        "the tool parser lost them, or max_tokens cut the call off and finish_reason hides it; the request named "
        "every value",
        "",
        ("argument_stream", "finish_reason_of_calls", "own_parser"),
    ),
    "call left out": Kind(
        "no call although the request requires one",
        "the server does not carry out tool_choice for this model's format",
        "update the engine",
        ("grammar_behind_spelled_end", "own_parser"),
    ),
    "no [DONE]": Kind(
        "the stream ends without [DONE]",
        "something on the way closed it: a time limit of a proxy, or a server that stopped",
        "compare with the engine's own port; look for time limits (nginx: proxy_read_timeout)",
    ),
    "no finish_reason": Kind(
        "no finish_reason in the answer",
        "the stream was cut on the way, or the server does not say how it ended",
        "compare with the engine's own port",
    ),
    "out of order": Kind(
        "text or a second end behind the end of the answer",
        "events were reordered or doubled on the way",
        "compare with the engine's own port",
    ),
    "broken event": Kind(
        "an event that cannot be read",
        "it was cut or changed on the way",
        "compare with the engine's own port; switch off buffering and compression of text/event-stream on the way",
    ),
    "broke off": Kind(
        "the answer broke off",
        "the server, or something before it, closed the connection in the middle",
        "look at the logs of the server and of what stands before it, at this time",
    ),
    "server error": Kind(
        "the server failed",
        "it ran into an error of its own",
        "look at the server's log",
    ),
    "no stream": Kind(
        "a stream was asked for, and something else came",
        "something on the way collects the answer, or the server does not stream",
        "compare with the engine's own port",
    ),
    "unreadable answer": Kind(
        "an answer that is no chat completion",
        "something else than the server answers, or it changes the answer",
        "compare with the engine's own port",
    ),
    "silence": Kind(
        "no answer within the time limit",
        "the server hangs, or its queue is longer than --timeout",
        "raise --timeout if the model is that slow; else look at the server's log",
    ),
    "buffered": Kind(
        "streams arrive in one burst at their end",
        "something on the way collects the stream",
        "switch off buffering of text/event-stream (nginx: proxy_buffering off)",
    ),
    "budget refused": Kind(
        "thinking_token_budget is refused",
        "the reasoning parser does not tell the engine its tags",
        "start the server with --reasoning-config",
        ("reasoning_strings", "reasoning_strings_thinking_off", "reasoning_config_default"),
    ),
    "budget exceeded": Kind(
        "the reasoning is longer than thinking_token_budget",
        "the engine does not see the tokens of this model's reasoning",
        "",
        ("reasoning_strings", "reasoning_config_default", "budget_behind_end"),
    ),
    "budget out of place": Kind(
        "thinking_token_budget ended a thought that was over",
        "the engine did not see that the reasoning was over, and ended it once more",
        "",
        ("budget_behind_end", "budget_behind_end_processor", "budget_behind_end_rows"),
    ),
    "answers mixed up": Kind(
        "words of one request in the answer to another",
        "requests that run at the same time share state: a parser, a cache, or a proxy that mixes streams",
        "take the server out of service, and compare with the engine's own port",
    ),
}
