"""The chat serving code of the engine on PYTHONPATH, driven without a server.

Every release has ``OpenAIServingChat`` with two generators that turn engine outputs into what a client
gets: ``chat_completion_stream_generator`` (``ParserManager.get_parser`` and ``parse_delta``, or, up to vllm
0.19, the reasoning and tool parsers called from inside the generator) and
``chat_completion_full_generator``. Only the outputs of the model are made here; parsing, tool choice and
finish reason are the engine's.
"""

from __future__ import annotations

import asyncio
import importlib
import inspect
import json
import logging
from collections.abc import AsyncIterator
from typing import Any

from engine_overlay.verify.cases import Answer, Case, delta_texts, full_text, piece_bytes, request_fields
from engine_overlay.verify.tokens import DEFAULT_SPECIAL, CaseTokenizer

_CHAT = "entrypoints.openai.chat_completion"


class EngineError(RuntimeError):
    """The serving code answered with an error instead of a message."""


class ServingCode:
    """Chat completions of the engine package ``name`` (``vllm`` or ``aphrodite``) for one case at a
    time.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        # Parsers log whole tracebacks about broken markup; the answers are what is judged here.
        logging.disable(logging.CRITICAL)
        serving = self._module(f"{_CHAT}.serving").OpenAIServingChat
        # Settings that a server would have read from its command line are off when nobody set them.
        self._serving = type("Serving", (serving,), {"__init__": lambda self: None, "__getattr__": _unset})
        self._request = self._module(f"{_CHAT}.protocol").ChatCompletionRequest
        self._manager = self._module("parser").ParserManager
        outputs = self._module("outputs")
        self._completion, self._output = outputs.CompletionOutput, outputs.RequestOutput
        self._metadata = self._metadata_class()
        self._takes_parser = (
            "parser" in inspect.signature(serving.chat_completion_full_generator).parameters
        )

    def _module(self, dotted: str) -> Any:
        return importlib.import_module(f"{self.name}.{dotted}")

    def _metadata_class(self) -> type:
        module = self._module(f"{_CHAT}.serving")
        return module.RequestResponseMetadata

    def stream(self, case: Case, groups: list[int]) -> Answer:
        """Replay the case cut into ``groups`` tokens per delta. Raises EngineError, or what a parser
        raised.
        """
        return asyncio.run(self._stream(case, groups))

    def full(self, case: Case) -> Answer:
        """Replay the case as one finished message. Raises as :meth:`stream`."""
        return asyncio.run(self._full(case))

    async def _stream(self, case: Case, groups: list[int]) -> Answer:
        run = _Run(self, case)
        arguments = run.common(_deltas(run, groups))
        parameters = inspect.signature(run.serving.chat_completion_stream_generator).parameters
        if "reasoning_parser" in parameters:
            arguments["reasoning_parser"] = run.reasoning_parser()
        if "chat_template_kwargs" in parameters:
            arguments["chat_template_kwargs"] = run.template_fields
        answer = Answer()
        async for line in run.serving.chat_completion_stream_generator(**arguments):
            data = line.removeprefix("data: ").strip()
            if data != "[DONE]":
                _add_chunk(answer, json.loads(data))
        return answer

    async def _full(self, case: Case) -> Answer:
        run = _Run(self, case)
        whole = run.output(full_text(case), run.ids, run.finish_reason)
        arguments = run.common(_one(whole))
        if self._takes_parser:
            arguments["parser"] = run.parser()
        else:
            arguments["reasoning_parser"] = run.reasoning_parser()
        response = await run.serving.chat_completion_full_generator(**arguments)
        if not hasattr(response, "choices"):
            raise EngineError(str(response))
        return _message(response.choices[0])


class _Run:
    """One case with its tokenizer, request, and a serving object that holds this case's parsers."""

    def __init__(self, code: ServingCode, case: Case) -> None:
        self.code, self.case = code, case
        prompt, pieces = (list(map(piece_bytes, case[key])) for key in ("prompt_pieces", "token_pieces"))
        self.tokenizer = CaseTokenizer(
            case.get("special", DEFAULT_SPECIAL), case["atomic"], [*prompt, *pieces]
        )
        self.prompt_ids = [self.tokenizer.id_of(piece) for piece in prompt]
        self.finish_reason = case.get("engine_finish", "stop")
        self.ids = [self.tokenizer.id_of(piece) for piece in pieces] + self.last_ids
        self.template_fields = dict(case.get("chat_template_kwargs") or {})
        self.request = code._request(**request_fields(case))
        self.serving = self._make_serving()

    @property
    def last_ids(self) -> list[int]:
        """The end token, which a model that stops by itself samples last and which has no text."""
        eos = self.tokenizer.eos_token_id
        return [eos] if self.finish_reason == "stop" and eos is not None else []

    def _make_serving(self) -> Any:
        case, manager = self.case, self.code._manager
        serving = self.code._serving()
        serving.enable_auto_tools = bool(case["tool_parser"])
        serving.response_role = "assistant"
        serving.tool_call_id_type = "random"
        serving.tool_parser = manager.get_tool_parser(
            tool_parser_name=case["tool_parser"],
            enable_auto_tools=serving.enable_auto_tools,
            model_name="model",
        )
        serving.parser_cls = manager.get_parser(
            tool_parser_name=case["tool_parser"],
            reasoning_parser_name=case["reasoning_parser"],
            enable_auto_tools=serving.enable_auto_tools,
            model_name="model",
        )
        return serving

    def common(self, outputs: AsyncIterator[Any]) -> dict[str, Any]:
        return {
            "request": self.request,
            "result_generator": outputs,
            "request_id": "request",
            "model_name": "model",
            "conversation": [],
            "tokenizer": self.tokenizer,
            "request_metadata": self.code._metadata(request_id="request"),
        }

    def reasoning_parser(self) -> Any:
        parser = self.code._manager.get_reasoning_parser(
            reasoning_parser_name=self.case["reasoning_parser"]
        )
        return parser(self.tokenizer, chat_template_kwargs=self.template_fields) if parser else None

    def parser(self) -> Any:
        if self.serving.parser_cls is None:
            return None
        make = getattr(type(self.serving), "_make_parser", None)
        if make is not None:
            return make(self.serving, self.request, self.tokenizer, self.template_fields)
        return self.serving.parser_cls(
            self.tokenizer, self.request.tools, chat_template_kwargs=self.template_fields
        )

    def output(self, text: str, ids: list[int], finish_reason: str | None) -> Any:
        completion = self.code._completion(
            index=0,
            text=text,
            token_ids=ids,
            cumulative_logprob=None,
            logprobs=None,
            finish_reason=finish_reason,
        )
        return self.code._output(
            request_id="request",
            prompt=None,
            prompt_token_ids=self.prompt_ids,
            prompt_logprobs=None,
            outputs=[completion],
            finished=finish_reason is not None,
        )


async def _deltas(run: _Run, groups: list[int]) -> AsyncIterator[Any]:
    texts = delta_texts(run.case, groups)
    apart = bool(run.last_ids) and not run.case.get("eos_same_delta")
    start = 0
    for position, (text, size) in enumerate(zip(texts, groups, strict=True), start=1):
        last = position == len(groups)
        ids = run.ids[start : start + size]
        if last and not apart:
            ids = ids + run.last_ids
        start += size
        yield run.output(text, ids, run.finish_reason if last and not apart else None)
    if apart:
        yield run.output("", run.last_ids, run.finish_reason)


async def _one(output: Any) -> AsyncIterator[Any]:
    yield output


def _unset(self: object, name: str) -> None:
    if name.startswith("__"):
        raise AttributeError(name)


def _add_chunk(answer: Answer, chunk: dict[str, Any]) -> None:
    if "error" in chunk:
        raise EngineError(json.dumps(chunk["error"]))
    for choice in chunk["choices"]:
        delta = choice["delta"]
        answer.add(delta.get("reasoning"), delta.get("content"))
        for call in delta.get("tool_calls") or []:
            function = call.get("function") or {}
            answer.add_call(call["index"], function.get("name"), function.get("arguments"))
        answer.finish_reason = choice.get("finish_reason") or answer.finish_reason


def _message(choice: Any) -> Answer:
    answer = Answer(finish_reason=choice.finish_reason)
    answer.add(getattr(choice.message, "reasoning", None), choice.message.content)
    for index, call in enumerate(choice.message.tool_calls or []):
        answer.add_call(index, call.function.name, call.function.arguments)
    return answer
