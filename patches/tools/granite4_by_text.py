"""Calls of Granite 4 are read true to the text, and streamed as they come.

Symptom: an answer that only talks about the tag (``Put JSON into `<tool_call>` tags.``) loses the rest of its content
in a stream. A ``</tool_call>`` inside a JSON string argument ends the call there, and it is lost. The arguments of a
call come all at once, behind its closer, and without a closer not at all; a tool that nobody declared is called.

Cause: ``Granite4ToolParser``, which has no parser engine, looks for the tags by regular expressions, believes each of
them, and parses a call when its closer is there.

Change: the overlay's own parser reads the content instead, with the rules of spelled_markers: an opener counts when
the head of a call to a declared tool follows, an end never inside a JSON string. Arguments are passed on as they
come; what is held back comes with the last delta. What stays: the reasoning half, the JSON of guided decoding, which
the serving code reads without this parser, requests that declare no tools, and classes of others that inherit from it.

Risk: white space in front of the first call, where nothing else was said, and at the end is no content any more. A
call that was cut off in its arguments is a call in a whole answer too, and in a stream.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from engine_overlay.engines import Engine
from engine_overlay.record import Finding, Outcome, Patch, Range, Target
from engine_overlay.serving import probing
from engine_overlay.serving.tool_half import Halves

_GRANITE = "tool_parsers.granite4_tool_parser:Granite4ToolParser"
_FULL, _STREAM = f"{_GRANITE}.extract_tool_calls", f"{_GRANITE}.extract_tool_calls_streaming"

PATCH = Patch(
    id="granite4_by_text",
    engines={"vllm": Range("0.24.0", "0.33.0"), "aphrodite": Range("0.22.0", "0.24.1")},
    targets=(Target(path=_FULL, bodies=("f1ec5cd3b06f",)), Target(path=_STREAM, bodies=("9adbbf3a8d36",))),
    # The attributes with the tags, and the tokenizer.
    reads=(Target(path=f"{_GRANITE}.__init__", bodies=("6f21785e2188",)),),
    upstream=(),
    relationship="different approach",
    # The fault is older, but before these releases parse_delta does not tell the last delta.
    introduced_in={"vllm": "0.24.0", "aphrodite": "0.22.0"},
    fixed_in={"vllm": None, "aphrodite": None},
    superseded_by=None,
    group=None,
    # It tells the last delta.
    requires=("tool_half_serving",),
    conflicts=(),
    after=(),
    default=True,
    default_reason="without it answers lose text and calls; healthy answers are the same",
    scope=("server",),
    native_alternative=None,
    remove_when="the engine reads this format with its parser engine",
)


def build(engine: Engine, originals: Mapping[str, Any]) -> Mapping[str, Any]:
    module = engine.module(_GRANITE.partition(":")[0])
    halves = Halves(module, engine.name, ("tc_start", "tc_end"), {("<tool_call>", "</tool_call>"): "hermes"})
    return {_FULL: halves.full(originals[_FULL]), _STREAM: halves.streaming(originals[_STREAM])}


def probe(engine: Engine) -> Finding:
    """Stream an answer that talks about the tag, and parse a whole call that has its closer in a string."""
    if engine.source("parser.engine.parser_engine") is None:
        return Finding(Outcome.ABSENT, "this release has no parser engine")
    return probing.tags(engine, "granite4")
