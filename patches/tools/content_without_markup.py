"""What a tool parser takes out of an answer is not put back when it holds no call.

Symptom: an answer that is cut off right behind ``<tool_call>`` ends with that tag when it is not streamed, and with
``tool_choice`` none the markup of a call stands in ``content`` (vllm 0.24.0).

Cause: ``DelegatingParser._extract_tool_calls`` gives back the text from before the tool parser when there was no call;
and with ``tool_choice`` none the parser engine of 0.24.0 is told to look for no calls, so that their markup is text.

Change: the tool parser always does its work; where it finds no call, or none is wanted, its content is the answer's.

Risk: none known; it is what the engine does from 0.30 on.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from engine_overlay.engines import Engine
from engine_overlay.record import Finding, Outcome, Patch, Range, Target
from engine_overlay.text import handoff

_CHECK = "parser.engine.parser_engine:ParserEngine._check_skip_tool_parsing"
_CALLS = "parser.abstract_parser:DelegatingParser._extract_tool_calls"
_EXTRACT = "parser.abstract_parser:DelegatingParser.extract_tool_calls"
_FLUSH = "parser.abstract_parser:DelegatingParser._flush_engine_parsers"

PATCH = Patch(
    id="content_without_markup",
    engines={"vllm": Range("0.24.0", "0.29.0"), "aphrodite": Range("0.22.0", "0.23.0")},
    targets=(
        Target(path=_CHECK, bodies=("3b5f8b726df7", "23dbaab7bf08")),
        Target(path=_CALLS, bodies=("8e36983d26f6", "1cff53747e63", "a0dabcc89ba3")),
        Target(path=_EXTRACT, bodies=("b1a64febe175",)),
        Target(path=_FLUSH, bodies=("d3b9a70d4898",)),
    ),
    reads=(),
    upstream=("https://github.com/vllm-project/vllm/issues/47137",),
    relationship="backport",
    introduced_in={"vllm": "0.24.0", "aphrodite": "0.22.0"},
    fixed_in={"vllm": "0.30.0", "aphrodite": "0.24.0"},
    superseded_by=None,
    group=None,
    requires=(),
    conflicts=(),
    after=("spelled_markers",),
    default=True,
    default_reason="answers without markup of a call are the same",
    scope=("server",),
    native_alternative=None,
    remove_when="these releases are no longer supported",
)

_LAST, _NONE = "_engine_overlay_last_extracted", "_engine_overlay_choice_is_none"


def build(engine: Engine, originals: Mapping[str, Any]) -> Mapping[str, Any]:
    """Wrappers of the four methods."""
    old_check, old_calls, old_extract = originals[_CHECK], originals[_CALLS], originals[_EXTRACT]
    old_flush = originals[_FLUSH]

    def check_skip_tool_parsing(self: Any, request: Any) -> None:
        before = self.skip_tool_parsing
        old_check(self, request)
        setattr(self, _NONE, getattr(request, "tool_choice", None) == "none")
        # Behind a DelegatingParser, which leaves the calls out itself; anybody else would get them.
        if self.__dict__.get("_overlay_serving"):
            self.skip_tool_parsing = before

    def extract_tool_calls(self: Any, model_output: str, request: Any) -> Any:
        info = self.__dict__[_LAST] = old_extract(self, model_output, request)
        return info

    def extract_all(self: Any, content: str | None, request: Any, enable_auto_tools: bool = False) -> Any:
        if not self._engine_based or self._tool_parser is None:
            return old_calls(self, content, request, enable_auto_tools)
        if request.tool_choice == "none":
            return [], self.extract_tool_calls(content or "", request).content
        self.__dict__.pop(_LAST, None)
        calls, rest = old_calls(self, content, request, enable_auto_tools)
        info = self.__dict__.pop(_LAST, None)
        return (calls, rest) if calls is not None or info is None else (None, info.content or None)

    def flush(self: Any, delta: Any) -> Any:
        inner = getattr(self._tool_parser, "_parser_engine", self._tool_parser)
        if not getattr(inner, _NONE, False):
            return old_flush(self, delta)
        # A call that the end of the stream closes is left out like the others.
        last = old_flush(self, None)
        for name in ("reasoning", "content"):
            if said := getattr(last, name, None):
                delta = type(last)() if delta is None else delta
                setattr(delta, name, (getattr(delta, name) or "") + said)
        return delta

    return {_CHECK: check_skip_tool_parsing, _CALLS: extract_all, _EXTRACT: extract_tool_calls, _FLUSH: flush}


def probe(engine: Engine) -> Finding:
    """Parse an answer that is cut off behind ``<tool_call>`` through the Qwen3 tool parser."""
    if engine.source("parser.engine.parser_engine") is None:
        return Finding(Outcome.ABSENT, "this release has no parser engine")
    tokenizer = handoff.tiny_tokenizer(("Hm",), ("<think>", "</think>", "<tool_call>", "</tool_call>"))
    protocol = engine.module("entrypoints.openai.chat_completion.protocol")
    tool = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
    request = protocol.ChatCompletionRequest(model="m", messages=[{"role": "user", "content": "?"}], tools=[tool])
    manager = engine.module("parser.parser_manager").ParserManager
    parser = manager.get_parser(tool_parser_name="qwen3_coder", enable_auto_tools=True)(tokenizer, request.tools)
    _, content, _ = parser.parse("Looking.\n<tool_call>", request, True)
    evidence = f"an answer that ends behind <tool_call> has the content {content!r}"
    if content == "Looking.\n":
        return Finding(Outcome.ABSENT, evidence)
    return Finding(Outcome.PRESENT if content == "Looking.\n<tool_call>" else Outcome.UNKNOWN, evidence)
