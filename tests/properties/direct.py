"""The parsers of the engine on PYTHONPATH, called as its serving code calls them, without that code around.

Much cheaper for each answer than :mod:`engine_overlay.verify.serving_code`, which the public cases go through.
"""

from __future__ import annotations

import functools
import importlib
import logging
from typing import Any

from engine_overlay.verify.cases import Answer, Case, delta_texts, full_text, piece_bytes, request_fields
from engine_overlay.verify.tokens import DEFAULT_SPECIAL, CaseTokenizer

BY_TEXT = ("hermes", "granite4", "longcat")
"""Tool parsers without a parser engine that the overlay reads by the text."""


class Direct:
    """Parsers of the package ``name`` (``vllm`` or ``aphrodite``), one new one for each answer."""

    def __init__(self, name: str) -> None:
        logging.disable(logging.CRITICAL)
        protocol = importlib.import_module(f"{name}.entrypoints.openai.chat_completion.protocol")
        self._request = protocol.ChatCompletionRequest
        self._manager = importlib.import_module(f"{name}.parser").ParserManager

    @functools.cache  # noqa: B019 - one object lives as long as its process
    def _parser_class(self, reasoning: str | None, tools: str | None) -> Any:
        return self._manager.get_parser(
            reasoning_parser_name=reasoning,
            tool_parser_name=tools,
            enable_auto_tools=bool(tools),
            model_name="model",
        )

    def covers(self, reasoning: str | None, tools: str | None) -> bool:
        """Whether this release builds both parsers on its parser engine; one of BY_TEXT needs none."""
        try:
            found = [self._manager.get_reasoning_parser(reasoning)] if reasoning else []
            found += [self._manager.get_tool_parser(tools, True, "model")] if tools and tools not in BY_TEXT else []
        except (KeyError, TypeError):
            return False
        return all(hasattr(parser, "_parser_engine_cls") for parser in found)

    def both(self, case: Case, cuts: list[int]) -> dict[str, Answer]:
        """The case as a stream cut into ``cuts`` tokens a delta, and as one message."""
        prompt, pieces = (list(map(piece_bytes, case[key])) for key in ("prompt_pieces", "token_pieces"))
        tokenizer = CaseTokenizer(DEFAULT_SPECIAL, case["atomic"], [*prompt, *pieces])
        prompt_ids = [tokenizer.id_of(piece) for piece in prompt]
        ids = [tokenizer.id_of(piece) for piece in pieces]
        request = self._request(**request_fields(case))
        parser_class = self._parser_class(case["reasoning_parser"], case["tool_parser"])
        # A model that is cut off says no end token.
        eos = [] if case.get("engine_finish") == "length" else [tokenizer.eos_token_id]
        return {
            "stream": _stream(parser_class(tokenizer, request.tools), case, cuts, request, prompt_ids, ids, eos),
            "full": _full(parser_class(tokenizer, request.tools), case, request, prompt_ids, [*ids, *eos]),
        }


def _stream(
    parser: Any, case: Case, cuts: list[int], request: Any, prompt: list[int], ids: list[int], eos: Any
) -> Answer:
    answer = Answer()
    start = 0
    deltas = [*zip(delta_texts(case, cuts), cuts, strict=True)]
    apart = bool(eos) and not case.get("eos_same_delta")
    deltas += [("", 0)] if apart else []
    for n, (text, size) in enumerate(deltas):
        last = n == len(deltas) - 1
        delta = parser.parse_delta(
            text,
            [*ids[start : start + size], *(eos if last else ())],
            request,
            prompt_token_ids=prompt,
            finished=last,
        )
        start += size
        if delta is None:
            continue
        answer.add(delta.reasoning, delta.content)
        for call in delta.tool_calls or ():
            function = call.function
            answer.add_call(call.index, function.name if function else None, function.arguments if function else None)
    answer.finish_reason = "tool_calls" if answer.calls else "stop"
    return answer


def _full(parser: Any, case: Case, request: Any, prompt: list[int], ids: list[int]) -> Answer:
    if hasattr(parser, "set_prompt_token_ids"):
        parser.set_prompt_token_ids(prompt)
    reasoning, content, calls = parser.parse(
        full_text(case), request, enable_auto_tools=bool(case["tool_parser"]), model_output_token_ids=ids
    )
    answer = Answer(finish_reason="tool_calls" if calls else "stop")
    answer.add(reasoning, content)
    for index, call in enumerate(calls or ()):
        answer.add_call(index, call.name, call.arguments)
    return answer
