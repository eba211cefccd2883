"""For probes: an engine's chat serving code on a bare object, fed with made-up outputs."""

from __future__ import annotations

import asyncio
import inspect
import json
import threading
from collections.abc import AsyncIterator, Coroutine, Sequence
from typing import Any

from engine_overlay.engines import Engine
from engine_overlay.record import Finding, Outcome
from engine_overlay.text.handoff import tiny_tokenizer

SPECIAL = ("<think>", "</think>", "<tool_call>", "</tool_call>")
TOOL = {"name": "f", "parameters": {"type": "object", "properties": {"x": {"type": "integer"}}}}


def bare(serving: type) -> Any:
    """An instance without a server; what nobody has set is None."""
    return type(serving.__name__, (serving,), {"__init__": lambda self: None, "__getattr__": _unset})()


def _unset(self: object, name: str) -> None:
    if name.startswith("__"):
        raise AttributeError(name)


def run(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """Run a coroutine to its end, also where an event loop is running already."""
    found: list[Any] = []

    def work() -> None:
        try:
            found.append(asyncio.run(coroutine))
        except Exception as error:
            found.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    if isinstance(found[0], Exception):
        raise found[0]
    return found[0]


def tokenizer(pieces: Sequence[str]) -> Any:
    """A tokenizer that knows the pieces and :data:`SPECIAL`."""
    return tiny_tokenizer(pieces, SPECIAL)


def outputs(engine: Engine, words: Any, pieces: Sequence[str], finish: str = "stop") -> list[Any]:
    """What the engine gives out for these pieces, one at a time; the prompt has opened the reasoning."""
    vocabulary = words.get_vocab()
    last = len(pieces) - 1
    return [
        output(engine, words, piece, [vocabulary[piece]], finish if n == last else None)
        for n, piece in enumerate(pieces)
    ]


def output(engine: Engine, words: Any, text: str, ids: list[int], finish_reason: str | None) -> Any:
    """One ``RequestOutput`` of the engine."""
    module = engine.module("outputs")
    completion = module.CompletionOutput(
        index=0, text=text, token_ids=ids, cumulative_logprob=None, logprobs=None, finish_reason=finish_reason
    )
    return module.RequestOutput(
        request_id="r",
        prompt=None,
        prompt_token_ids=[words.get_vocab()["<think>"]],
        prompt_logprobs=None,
        outputs=[completion],
        finished=finish_reason is not None,
    )


class ChatServer:
    """A server launched with these two parsers; its tokenizer knows ``pieces`` and :data:`SPECIAL`."""

    def __init__(self, engine: Engine, reasoning: str | None, tools: str | None, pieces: Sequence[str]) -> None:
        self._serving = engine.module("entrypoints.openai.chat_completion.serving")
        self._protocol = engine.module("entrypoints.openai.chat_completion.protocol")
        self._engine = engine
        self._tokenizer = tokenizer(pieces)
        manager = engine.module("parser.parser_manager").ParserManager
        auto = tools is not None
        self._server = bare(self._serving.OpenAIServingChat)
        self._server.enable_auto_tools, self._server.response_role = auto, "assistant"
        self._server.tool_call_id_type = "random"
        self._server.tool_parser = manager.get_tool_parser(tools, auto)
        self._server.parser_cls = manager.get_parser(tools, reasoning, auto)
        self._reasoning = manager.get_reasoning_parser(reasoning)

    def stream(self, pieces: Sequence[str], *, finish: str = "stop", **fields: Any) -> dict[str, Any]:
        """What a client puts together when each piece is a delta; ``finish``: the engine's finish reason."""
        return run(self._stream(pieces, finish, fields))

    def full(self, pieces: Sequence[str], *, finish: str = "stop", **fields: Any) -> dict[str, Any]:
        """The message when nothing is streamed."""
        return run(self._full(pieces, finish, fields))

    async def _stream(self, pieces: Sequence[str], finish: str, fields: dict[str, Any]) -> dict[str, Any]:
        generate = self._server.chat_completion_stream_generator
        arguments = self._arguments(generate, outputs(self._engine, self._tokenizer, pieces, finish), fields)
        seen: dict[str, Any] = {"reasoning": "", "content": "", "calls": [], "finish_reason": None}
        async for line in generate(**arguments):
            data = line.removeprefix("data: ").strip()
            for choice in json.loads(data).get("choices", ()) if data != "[DONE]" else ():
                delta = choice["delta"]
                for name in ("reasoning", "content"):
                    seen[name] += delta.get(name) or ""
                for call in delta.get("tool_calls") or ():
                    while len(seen["calls"]) <= call["index"]:
                        seen["calls"].append(["", ""])
                    made, function = seen["calls"][call["index"]], call["function"]
                    made[0] += function.get("name") or ""
                    made[1] += function.get("arguments") or ""
                seen["finish_reason"] = choice.get("finish_reason") or seen["finish_reason"]
        return _tidy(seen)

    async def _full(self, pieces: Sequence[str], finish: str, fields: dict[str, Any]) -> dict[str, Any]:
        ids = [self._tokenizer.get_vocab()[piece] for piece in pieces]
        whole = output(self._engine, self._tokenizer, "".join(pieces), ids, finish)
        generate = self._server.chat_completion_full_generator
        response = await generate(**self._arguments(generate, [whole], fields))
        if not hasattr(response, "choices"):
            raise RuntimeError(str(response))
        choice = response.choices[0]
        message = choice.message
        return _tidy(
            {
                "reasoning": message.reasoning or "",
                "content": message.content or "",
                "calls": [[c.function.name, c.function.arguments] for c in message.tool_calls or ()],
                "finish_reason": choice.finish_reason,
            }
        )

    def _arguments(self, generate: Any, made: list[Any], fields: dict[str, Any]) -> dict[str, Any]:
        async def results() -> AsyncIterator[Any]:
            for result in made:
                yield result

        tools = {"tools": [{"type": "function", "function": TOOL}]} if self._server.tool_parser else {}
        body = {"model": "m", "messages": [{"role": "user", "content": "?"}], **tools, **fields}
        arguments = {
            "request": self._protocol.ChatCompletionRequest(**body),
            "result_generator": results(),
            "request_id": "r",
            "model_name": "m",
            "conversation": [],
            "tokenizer": self._tokenizer,
            "request_metadata": self._serving.RequestResponseMetadata(request_id="r"),
        }
        parameters = inspect.signature(generate).parameters
        if "reasoning_parser" in parameters:
            arguments["reasoning_parser"] = self._reasoning(self._tokenizer) if self._reasoning else None
        if "parser" in parameters and self._server.parser_cls is not None:
            arguments["parser"] = self._server.parser_cls(self._tokenizer, arguments["request"].tools)
        return arguments


def tags(engine: Engine, tools: str) -> Finding:
    """Ask a server with this tool parser for an answer that talks about ``<tool_call>``, streamed, and for a whole call
    with ``</tool_call>`` in a string.
    """
    mention = ("Put", " it", " into", " `", "<tool_call>", "`", " tags", ".")
    call = ("<tool_call>", '\n{"name": "f", "arguments": {"y": "', "</tool_call>", '"}}\n', "</tool_call>")
    server = ChatServer(engine, None, tools, dict.fromkeys((*mention, *call)))
    content, calls = server.stream(mention)["content"], server.full(call)["calls"]
    seen = f"a mention of the tag gives the content {content!r}, a call with its closer in a string {calls!r}"
    if content == "".join(mention) and calls == [["f", '{"y": "</tool_call>"}']]:
        return Finding(Outcome.ABSENT, seen)
    return Finding(Outcome.PRESENT if content == "Put it into `" and not calls else Outcome.UNKNOWN, seen)


def _tidy(seen: dict[str, Any]) -> dict[str, Any]:
    return {**seen, "reasoning": seen["reasoning"].strip(), "content": seen["content"].strip()}
