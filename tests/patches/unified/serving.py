"""The chat and responses serving code of the engine found here, behind one scenario."""

from __future__ import annotations

import asyncio
import importlib
import inspect
import json
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

from engine_overlay.verify.serving_code import _unset
from engine_overlay.verify.tokens import DEFAULT_SPECIAL, CaseTokenizer
from tests.patches.unified.scenarios import ATOMIC, TOOLS, Scenario, pieces_of


class Server:
    """The serving code behind one scenario."""

    def __init__(self, name: str, scenario: Scenario) -> None:
        self.name, self.scenario = name, scenario
        self.answers = [pieces_of(text, scenario.spelled) for text in scenario.texts]
        prompt = pieces_of(scenario.prompt, spelled=False)
        pieces = [piece.encode() for piece in [*prompt, *sum(self.answers, [])]]
        self.tokenizer = CaseTokenizer(DEFAULT_SPECIAL, ATOMIC, pieces)
        self.prompt_ids = self.ids(prompt)
        self.eos = self.tokenizer.eos_token_id

    def ids(self, pieces: list[str]) -> list[int]:
        return [self.tokenizer.id_of(piece.encode()) for piece in pieces]

    def module(self, dotted: str) -> Any:
        return importlib.import_module(f"{self.name}.{dotted}")

    def bare(self, cls: type) -> Any:
        serving = type(cls.__name__, (cls,), {"__init__": lambda self: None, "__getattr__": _unset})()
        manager, names = self.module("parser").ParserManager, self.scenario
        serving.enable_auto_tools = bool(names.tools)
        serving.response_role, serving.tool_call_id_type = "assistant", names.id_type
        serving.tool_parser = manager.get_tool_parser(names.tools, bool(names.tools), "m")
        serving.reasoning_parser_cls = manager.get_reasoning_parser(names.reasoning)
        serving.parser = serving.parser_cls = manager.get_parser(names.tools, names.reasoning, bool(names.tools), "m")
        return serving

    def output(self, index: int, text: str, ids: list[int], finish: str | None) -> Any:
        outputs = self.module("outputs")
        logprobs = None
        if self.scenario.request.get("logprobs"):
            one = self.module("logprobs").Logprob
            logprobs = [{i: one(logprob=-1.0, rank=1, decoded_token=self.tokenizer.decode([i]))} for i in ids]
        completion = outputs.CompletionOutput(
            index=index, text=text, token_ids=ids, cumulative_logprob=None, logprobs=logprobs, finish_reason=finish
        )
        return outputs.RequestOutput(
            request_id="r",
            prompt=None,
            prompt_token_ids=self.prompt_ids,
            prompt_logprobs=None,
            outputs=[completion],
            finished=finish is not None,
        )

    def deltas(self) -> list[Any]:
        """Each answer cut into deltas of ``step`` tokens, the answers in turns."""
        made = []
        for index, pieces in enumerate(self.answers):
            step = self.scenario.step
            cut = [pieces[at : at + step] for at in range(0, len(pieces), step)]
            for n, part in enumerate(cut):
                last = n == len(cut) - 1
                made.append((n, index, "".join(part), self.ids(part), last))
        made.sort(key=lambda delta: delta[:2])
        return [self._last(index, text, ids, last) for _, index, text, ids, last in made]

    def _last(self, index: int, text: str, ids: list[int], last: bool) -> Any:
        stop = [self.eos] if last and self.scenario.finish == "stop" else []
        return self.output(index, text, ids + stop, self.scenario.finish if last else None)

    def whole(self) -> Any:
        done = [self._last(i, "".join(pieces), self.ids(pieces), True) for i, pieces in enumerate(self.answers)]
        first = done[0]
        first.outputs = [result.outputs[0] for result in done]
        return first

    # -- chat

    def chat(self) -> dict[str, Any]:
        return {"stream": asyncio.run(self._chat_stream()), "full": asyncio.run(self._chat_full())}

    def _arguments(self, serving: Any, generate: Any, results: list[Any]) -> dict[str, Any]:
        protocol = self.module("entrypoints.openai.chat_completion.protocol")
        module = self.module("entrypoints.openai.chat_completion.serving")
        body: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
        if self.scenario.tools or self.scenario.declare:
            body["tools"] = [{"type": "function", "function": tool} for tool in TOOLS]
        body |= {"n": len(self.answers), **self.scenario.request}
        template = self.scenario.request.get("chat_template_kwargs") or {}
        arguments = {
            "request": protocol.ChatCompletionRequest(**body),
            "result_generator": _each(results),
            "request_id": "r",
            "model_name": "m",
            "conversation": list(self.scenario.conversation),
            "tokenizer": self.tokenizer,
            "request_metadata": module.RequestResponseMetadata(request_id="r"),
        }
        parameters = inspect.signature(generate).parameters
        if "reasoning_parser" in parameters:
            cls = serving.reasoning_parser_cls
            arguments["reasoning_parser"] = cls(self.tokenizer, chat_template_kwargs=template) if cls else None
        if "chat_template_kwargs" in parameters:
            arguments["chat_template_kwargs"] = template
        if "parser" in parameters:
            make = getattr(type(serving), "_make_parser", None)
            request = arguments["request"]
            arguments["parser"] = (
                make(serving, request, self.tokenizer, template)
                if make
                else serving.parser_cls(self.tokenizer, request.tools, chat_template_kwargs=template)
            )
        return arguments

    async def _chat_stream(self) -> Any:
        serving = self.bare(self.module("entrypoints.openai.chat_completion.serving").OpenAIServingChat)
        generate = serving.chat_completion_stream_generator
        seen = [empty() for _ in self.answers]
        async for line in generate(**self._arguments(serving, generate, self.deltas())):
            data = line.removeprefix("data: ").strip()
            chunk = {} if data == "[DONE]" else json.loads(data)
            if "error" in chunk:
                return {"error": str(chunk["error"])}
            for choice in chunk.get("choices", ()):
                add(seen[choice["index"]], choice["delta"])
                seen[choice["index"]]["logprobs"] += len((choice.get("logprobs") or {}).get("content") or ())
                seen[choice["index"]]["finish"] = choice.get("finish_reason") or seen[choice["index"]]["finish"]
        return [tidy(answer) for answer in seen]

    async def _chat_full(self) -> Any:
        serving = self.bare(self.module("entrypoints.openai.chat_completion.serving").OpenAIServingChat)
        generate = serving.chat_completion_full_generator
        try:
            response = await generate(**self._arguments(serving, generate, [self.whole()]))
        except Exception as error:
            return {"error": f"{type(error).__name__}: {error}"}
        if not hasattr(response, "choices"):
            return {"error": str(response)}
        seen = []
        for choice in response.choices:
            answer = empty()
            message = choice.message.model_dump()
            for n, call in enumerate(message.get("tool_calls") or ()):
                call["index"] = n
            add(answer, message)
            answer["logprobs"] = len(choice.logprobs.content or ()) if choice.logprobs else 0
            seen.append(tidy({**answer, "finish": choice.finish_reason}))
        return seen

    # -- responses

    def responses(self) -> dict[str, Any]:
        return {"stream": asyncio.run(self._responses_stream()), "full": asyncio.run(self._responses_full())}

    def _responses_request(self) -> Any:
        protocol = self.module("entrypoints.openai.responses.protocol")
        body: dict[str, Any] = {"model": "m", "input": "hi", "stream": False, "store": False}
        if self.scenario.tools:
            body["tools"] = [{"type": "function", **tool} for tool in TOOLS]
        choice = self.scenario.request.get("tool_choice")
        if isinstance(choice, dict):
            choice = {"type": "function", "name": choice["function"]["name"]}
        return protocol.ResponsesRequest(**body, **({"tool_choice": choice} if choice else {}))

    async def _responses_stream(self) -> Any:
        module = self.module("entrypoints.openai.responses.serving")
        serving, context = self.bare(module.OpenAIServingResponses), module.SimpleContext()
        seen = {"reasoning": "", "content": "", "calls": []}
        names: list[str] = []
        stream = serving._process_simple_streaming_events(
            request=self._responses_request(),
            sampling_params=None,
            result_generator=_contexts(context, self.deltas()),
            context=context,
            model_name="m",
            tokenizer=self.tokenizer,
            request_metadata=None,
            created_time=0,
            _increment_sequence_number_and_return=lambda event: event,
        )
        async for event in stream:
            item = getattr(event, "item", None)
            if event.type == "response.output_item.added" and item.type == "function_call":
                names.append(item.name)
                seen["calls"].append([item.name, ""])
            elif event.type == "response.function_call_arguments.delta":
                seen["calls"][-1][1] += event.delta
            elif event.type == "response.reasoning_text.delta":
                seen["reasoning"] += event.delta
            elif event.type == "response.output_text.delta":
                seen["content"] += event.delta
        return tidy(seen)

    async def _responses_full(self) -> Any:
        module = self.module("entrypoints.openai.responses.serving")
        serving, context = self.bare(module.OpenAIServingResponses), module.SimpleContext()
        params = self.module("sampling_params").SamplingParams(max_tokens=10)
        response = await serving.responses_full_generator(
            self._responses_request(),
            params,
            _contexts(context, self.deltas()),
            context,
            "m",
            self.tokenizer,
            SimpleNamespace(),
        )
        if not hasattr(response, "output"):
            return {"error": str(response)}
        seen = {"reasoning": "", "content": "", "calls": []}
        for item in response.output:
            if item.type == "function_call":
                seen["calls"].append([item.name, item.arguments])
            else:
                field = "reasoning" if item.type == "reasoning" else "content"
                seen[field] += "".join(part.text for part in item.content or ())
        return tidy(seen) | {"reasoning_tokens": response.usage.output_tokens_details.reasoning_tokens}


def empty() -> dict[str, Any]:
    return {"reasoning": "", "content": "", "calls": [], "ids": [], "logprobs": 0, "finish": None}


def add(answer: dict[str, Any], delta: dict[str, Any]) -> None:
    answer["reasoning"] += delta.get("reasoning") or ""
    answer["content"] += delta.get("content") or ""
    for call in delta.get("tool_calls") or ():
        while len(answer["calls"]) <= call["index"]:
            answer["calls"].append(["", ""])
            answer["ids"].append(call.get("id"))
        function = call.get("function") or {}
        answer["calls"][call["index"]][0] += function.get("name") or ""
        answer["calls"][call["index"]][1] += function.get("arguments") or ""


def tidy(answer: dict[str, Any]) -> dict[str, Any]:
    calls = []
    for name, arguments in answer["calls"]:
        try:
            calls.append([name, json.loads(arguments)])
        except ValueError:
            calls.append([name, f"not JSON: {arguments}"])
    texts = {field: answer[field].strip() for field in ("reasoning", "content")}
    return {**answer, **texts, "calls": calls}


async def _each(results: list[Any]) -> AsyncIterator[Any]:
    for result in results:
        yield result


async def _contexts(context: Any, results: list[Any]) -> AsyncIterator[Any]:
    for result in results:
        context.append_output(result)
        yield context
