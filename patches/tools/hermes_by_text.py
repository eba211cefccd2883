"""Hermes calls are read true to the text, in streams and in whole answers; LongCat's too.

Symptom: an answer that only talks about the tag (``Put JSON into `<tool_call>` tags.``) loses the rest of its content
in a stream. A ``</tool_call>`` inside a JSON string argument ends the call there: the stream gives broken JSON, and a
whole answer gives the call as text. What is said behind a call is lost, and a tool that nobody declared is called.

Cause: ``Hermes2ProToolParser``, which has no parser engine, looks for the tags by ``find`` and a regular expression
in all of the text so far, and believes each of them.

Change: the overlay's own parser reads the content instead, with the rules of spelled_markers: an opener counts when
the head of a call to a declared tool follows, an end never inside a JSON string. Arguments are passed on as they
come; what is held back comes with the last delta. What stays: the reasoning half, the JSON of guided decoding, which
the serving code reads without this parser, requests that declare no tools, and classes of others that inherit from it.

Risk: white space in front of the first call, where nothing else was said, and at the end is no content any more. A
call that was cut off in its arguments is a call in a whole answer too, as it is in a stream.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from engine_overlay.engines import Engine
from engine_overlay.record import Finding, Outcome, Patch, Range, Target
from engine_overlay.serving import probing
from engine_overlay.serving.tool_half import Halves

_HERMES = "tool_parsers.hermes_tool_parser:Hermes2ProToolParser"
_FULL, _STREAM = f"{_HERMES}.extract_tool_calls", f"{_HERMES}.extract_tool_calls_streaming"

PATCH = Patch(
    id="hermes_by_text",
    engines={"vllm": Range("0.24.0", "0.33.0"), "aphrodite": Range("0.22.0", "0.24.1")},
    targets=(Target(path=_FULL, bodies=("6dadebb7c427",)), Target(path=_STREAM, bodies=("b06177999728",))),
    # The attributes with the tags, and the tokenizer.
    reads=(Target(path=f"{_HERMES}.__init__", bodies=("ee0e5b03a30f",)),),
    upstream=(),
    relationship="different approach",
    # The fault is older; before these releases own_parser serves this name.
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

_FORMATS = {
    ("<tool_call>", "</tool_call>"): "hermes",
    ("<longcat_tool_call>", "</longcat_tool_call>"): "longcat",
}


def build(engine: Engine, originals: Mapping[str, Any]) -> Mapping[str, Any]:
    module = engine.module(_HERMES.partition(":")[0])
    halves = Halves(module, engine.name, ("tool_call_start_token", "tool_call_end_token"), _FORMATS)
    return {_FULL: halves.full(originals[_FULL]), _STREAM: halves.streaming(originals[_STREAM])}


def probe(engine: Engine) -> Finding:
    """Stream an answer that talks about the tag, and parse a whole call that has its closer in a string."""
    if engine.source("parser.engine.parser_engine") is None:
        return Finding(Outcome.ABSENT, "this release has no parser engine, and own_parser serves its hermes parser")
    return probing.tags(engine, "hermes")
