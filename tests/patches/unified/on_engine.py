"""Answers through the chat and responses serving code of the engine found here, asked in many ways.

    python -m tests.patches.unified.on_engine OUT [answers] [names]

Runs in a process of one release. OUT gets what the scenarios give, stream and full, and what the parser managers
hand out; what they must is said beside the scenarios and in the tests.
"""

from __future__ import annotations

import asyncio
import importlib
import inspect
import json
import logging
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from engine_overlay.verify.serving_code import _unset
from engine_overlay.verify.tokens import DEFAULT_SPECIAL, CaseTokenizer
from tests.patches.unified.scenarios import ATOMIC, NAMES, SCENARIOS, TOOLS, Scenario, pieces_of


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
        seen = [_empty() for _ in self.answers]
        async for line in generate(**self._arguments(serving, generate, self.deltas())):
            data = line.removeprefix("data: ").strip()
            chunk = {} if data == "[DONE]" else json.loads(data)
            if "error" in chunk:
                return {"error": str(chunk["error"])}
            for choice in chunk.get("choices", ()):
                _add(seen[choice["index"]], choice["delta"])
                seen[choice["index"]]["logprobs"] += len((choice.get("logprobs") or {}).get("content") or ())
                seen[choice["index"]]["finish"] = choice.get("finish_reason") or seen[choice["index"]]["finish"]
        return [_tidy(answer) for answer in seen]

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
            answer = _empty()
            message = choice.message.model_dump()
            for n, call in enumerate(message.get("tool_calls") or ()):
                call["index"] = n
            _add(answer, message)
            answer["logprobs"] = len(choice.logprobs.content or ()) if choice.logprobs else 0
            seen.append(_tidy({**answer, "finish": choice.finish_reason}))
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
        return _tidy(seen)

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
        return _tidy(seen) | {"reasoning_tokens": response.usage.output_tokens_details.reasoning_tokens}


def _empty() -> dict[str, Any]:
    return {"reasoning": "", "content": "", "calls": [], "ids": [], "logprobs": 0, "finish": None}


def _add(answer: dict[str, Any], delta: dict[str, Any]) -> None:
    answer["reasoning"] += delta.get("reasoning") or ""
    answer["content"] += delta.get("content") or ""
    for call in delta.get("tool_calls") or ():
        while len(answer["calls"]) <= call["index"]:
            answer["calls"].append(["", ""])
            answer["ids"].append(call.get("id"))
        function = call.get("function") or {}
        answer["calls"][call["index"]][0] += function.get("name") or ""
        answer["calls"][call["index"]][1] += function.get("arguments") or ""


def _tidy(answer: dict[str, Any]) -> dict[str, Any]:
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


def direct(name: str) -> dict[str, Any]:
    """What somebody gets who asks the managers for parsers, and calls them as the serving code does."""
    call = next(s for s in SCENARIOS if s.name == "stock qwen3_xml spelled by 1")
    server = Server(name, call)
    protocol = server.module("entrypoints.openai.chat_completion.protocol")
    tools = [{"type": "function", "function": tool} for tool in TOOLS]
    request = protocol.ChatCompletionRequest(model="m", messages=[{"role": "user", "content": "hi"}], tools=tools)
    manager = server.module("parser.parser_manager").ParserManager
    cls = manager.get_parser("qwen3_coder", "qwen3", True, "m")
    seen: dict[str, Any] = {"reasoning_parser_cls": cls.reasoning_parser_cls.__name__}
    make = lambda: cls(server.tokenizer, request.tools) if _takes_tools(cls) else cls(server.tokenizer)  # noqa: E731

    answer = _empty()
    parser = make()
    if hasattr(parser, "parse_delta"):
        finished = "finished" in inspect.signature(parser.parse_delta).parameters
        for result in server.deltas():
            output = result.outputs[0]
            more = {"finished": output.finish_reason is not None} if finished else {}
            message = parser.parse_delta(output.text, output.token_ids, request, server.prompt_ids, **more)
            if message is not None:
                _add(answer, message.model_dump())
        seen["parse_delta"] = _tidy(answer)
    text = "".join(server.answers[0])
    parser = make()
    reasoning, content = parser._reasoning_parser.extract_reasoning(text, request)
    found = parser._tool_parser.extract_tool_calls(content, request)
    calls = [[c.function.name, json.loads(c.function.arguments)] for c in found.tool_calls]
    seen["two steps"] = {"reasoning": reasoning, "content": (found.content or "").strip(), "calls": calls}
    if hasattr(parser, "parse"):
        reasoning, content, found = make().parse(text, request, True)
        calls = [[c.name, json.loads(c.arguments)] for c in found]
        seen["parse"] = {"reasoning": reasoning, "content": (content or "").strip(), "calls": calls}
    seen["other pair"] = [c.__name__ for c in (manager.get_parser("llama3_json", "qwen3", True, "m"),)]
    return seen


def _takes_tools(cls: type) -> bool:
    return "tools" in inspect.signature(cls.__init__).parameters


def named(name: str) -> dict[str, Any]:
    """What both managers say of the names of the own parsers, and what the engine core asks of such a parser."""
    server = Server(name, SCENARIOS[0])
    reasoning = server.module("reasoning").ReasoningParserManager
    tools = server.module("tool_parsers").ToolParserManager
    seen: dict[str, Any] = {
        "reasoning": [n for n in reasoning.list_registered() if n.endswith("_engine")],
        "tools": [n for n in tools.list_registered() if n.endswith("_engine")],
        "bases": {
            n: [_stock(reasoning.get_reasoning_parser(n)), _stock(tools.get_tool_parser(n))]
            for n in NAMES
            if n in tools.list_registered()
        },
        "core": {},
    }
    for title, text, spelled in (
        ("whole", "Hm.</think>\n\nFour.", False),
        ("spelled", "Hm.</think>\n\nFour.", True),
        ("mention", "The tag `</think>` is", True),
    ):
        pieces = pieces_of(text, spelled)
        server = Server(name, Scenario(title, (text,), (), spelled=spelled))
        parser = reasoning.get_reasoning_parser("qwen3_engine")(server.tokenizer)
        ids = server.ids(pieces)
        said = [parser.is_reasoning_end_streaming(ids[: n + 1], ids[n : n + 1]) for n in range(len(ids))]
        seen["core"][title] = {
            "ends after": "".join(pieces[: said.index(True) + 1]) if True in said else None,
            "whole": parser.is_reasoning_end(ids),
            "reasoning tokens": parser.count_reasoning_tokens(ids),
            "markers": [parser.reasoning_start_str, parser.reasoning_end_str],
        }
    return seen


def _stock(cls: type) -> str:
    """The engine's own class behind this one."""
    return next(c.__qualname__ for c in cls.__mro__ if "engine_overlay_half" not in vars(c))


def kept(name: str) -> dict[str, Any]:
    """What a user registers under a stock name stays."""
    server = Server(name, next(s for s in SCENARIOS if s.name == "no tool parser, deepseek_r1"))
    manager = server.module("reasoning").ReasoningParserManager
    stock = manager.get_reasoning_parser("deepseek_r1")

    class Mine(stock):  # type: ignore[misc, valid-type]
        def extract_reasoning(self, model_output: str, request: Any) -> tuple[str, str]:
            return "mine", model_output

    before = dict(manager.reasoning_parsers)
    manager.register_module("deepseek_r1", module=Mine)
    try:
        return {"full": server.chat()["full"], "class": _stock(manager.get_reasoning_parser("deepseek_r1"))}
    finally:
        manager.reasoning_parsers.clear()
        manager.reasoning_parsers.update(before)


def main(out: str, *parts: str) -> None:
    from engine_overlay import engines, importer

    logging.disable(logging.CRITICAL)
    name = engines.installed()[0].name
    seen: dict[str, Any] = {}
    server = Server(name, SCENARIOS[0])
    # The packages register the stock parsers, both of which a name of the own parsers needs.
    server.module("reasoning")
    known = server.module("tool_parsers").ToolParserManager.list_registered()
    scenarios = [s for s in SCENARIOS if s.tools is None or s.tools in known]
    if "answers" in parts:
        seen["answers"] = {}
        for scenario in scenarios:
            server = Server(name, scenario)
            seen["answers"][scenario.name] = {"chat": server.chat()}
            if scenario.responses:
                seen["answers"][scenario.name]["responses"] = server.responses()
        seen["direct"], seen["kept"] = direct(name), kept(name)
    if "names" in parts:
        seen["named"] = named(name)
        seen["same"] = {s.name: Server(name, s).chat() for s in scenarios if s.by_name}
    seen["overlay"] = importer.overlay is not None
    Path(out).write_text(json.dumps(seen, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
