"""Turn the arguments of markup calls into JSON while they come, in linear time, and lose none

Symptom: a call whose last ``</parameter>`` is missing has lost that argument (full) or is no JSON (streaming), a
``</parameter>`` that a value only mentions cuts the value, ``<parameter=`` without its ``>`` makes JSON that never
ends, and an argument of 24,000 characters costs 20 seconds of CPU inside the server's event loop (vllm up to 0.32).
Types that a schema gives by ``$ref``, ``const`` or unions are not seen, nor are Python spellings (``['a']``).

Cause: at each delta ``ParserEngine._compute_arg_delta`` converts the whole text so far with regular expressions, and
gives what is new if the old JSON is a beginning of the new. The expressions know closed arguments only, and take the
first ``</parameter>`` for the closing one.

Change: each call gets one :class:`engine_overlay.text.arguments.ArgumentStream`, which looks at each character once
and knows what closes a value; the full path gives the same JSON as the stream, byte by byte. Formats are told apart
by what the engine's own converter makes of a sample, which also decides what is trimmed; a format whose converter is
not recognised (and every format with JSON arguments) stays as it is.

Risk: text after a closed argument that is no new argument makes that closing tag part of the value; stock dropped the
text. A name given twice gives two JSON members of that name, of which JSON readers take the last, as stock did.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from engine_overlay.engines import Engine
from engine_overlay.record import Finding, Outcome, Patch, Range, Target
from engine_overlay.serving.stand_in_model import NoVocabulary
from engine_overlay.text.arguments import ArgumentStream
from engine_overlay.text.markup import Syntax, syntax_of
from engine_overlay.text.tools import schema_of

_PARSER = "parser.engine.parser_engine:ParserEngine"

PATCH = Patch(
    id="argument_stream",
    engines={"vllm": Range("0.24.0", "0.33.0"), "aphrodite": Range("0.22.0", "0.24.1")},
    targets=(
        Target(path=f"{_PARSER}._compute_arg_delta", bodies=("07489a2d801d", "728cd1362594")),
        Target(path=f"{_PARSER}._flush_arg_converter", bodies=("2fa87b919225",)),
        Target(path=f"{_PARSER}._handle_tool_end", bodies=("7f22cc62471c", "1c22a7c7ef5a")),
        Target(path=f"{_PARSER}._build_extracted_result", bodies=("797773bcd019", "047c3440b441")),
    ),
    reads=(
        Target(path=f"{_PARSER}._handle_arg_chunk", bodies=("1a97aaa38ccc",)),
        Target(path="parser.engine.parser_engine:ToolCallSlot", bodies=("d54008cb94b8", "25d25fbe7239")),
        Target(path="parser.engine.events:SemanticEvent", bodies=("aa63ba41a3ac", "a87045fb0ac2")),
        Target(
            path="tool_parsers.utils:find_tool_properties",
            bodies=("3f9806868fdf", "76658725eb8b", "bfc0d98bba92"),
        ),
    ),
    upstream=(),
    relationship="different approach",
    introduced_in={"vllm": "0.24.0", "aphrodite": "0.22.0"},
    fixed_in={"vllm": None, "aphrodite": None},
    superseded_by=None,
    group=None,
    requires=(),
    after=(),
    conflicts=(),
    default=True,
    default_reason="healthy arguments are the same bytes, and the others are valid JSON with nothing lost",
    scope=("server",),
    native_alternative=None,
    remove_when="the engine converts arguments incrementally in all formats and closes values by the format's grammar",
)


def _syntax(config: Any) -> Syntax | None:
    """The syntax that a ``ParserEngineConfig`` describes, kept with the config; None when it is not markup."""
    try:
        return config._engine_overlay_syntax
    except AttributeError:
        pass
    found = None
    if config.arg_converter is not None and config.stream_arg_deltas and not config.tool_args_json:
        literals = config.terminals.values()
        markers = [m for literal in literals for m in ((literal,) if isinstance(literal, str) else literal)]
        found = syntax_of(markers, config.arg_converter)
    # The config is frozen, shared by all requests, and lives as long as its parser class.
    object.__setattr__(config, "_engine_overlay_syntax", found)
    return found


def build(engine: Engine, originals: Mapping[str, Any]) -> Mapping[str, Any]:
    """The replacements: own streams for the formats that are known, the originals for all others."""
    find_properties = engine.module("tool_parsers.utils").find_tool_properties
    old_compute = originals[f"{_PARSER}._compute_arg_delta"]
    old_flush = originals[f"{_PARSER}._flush_arg_converter"]
    old_tool_end = originals[f"{_PARSER}._handle_tool_end"]
    old_result = originals[f"{_PARSER}._build_extracted_result"]

    def advance(self: Any, idx: int) -> tuple[ArgumentStream | None, str]:
        """(the stream of a call, the JSON that its new raw text adds); (None, "") for a format that is not ours."""
        syntax = _syntax(self.parser_engine_config)
        if syntax is None or self._arg_converter is None:
            return None, ""
        slot = self._tool_slots[idx]
        streams = vars(self).setdefault("_overlay_arguments", {})
        entry = streams.get(idx)
        # Another response of the same parser has other slots.
        if entry is None or entry[0] is not slot:
            schema = schema_of(self._tools, slot.name.strip(), find_properties)
            entry = streams[idx] = [slot, ArgumentStream(syntax, schema), 0]
            self._overlay_open = entry
        stream, parts = entry[1], slot._args_parts
        # Usually one more.
        new = parts[-1] if len(parts) == entry[2] + 1 else "".join(parts[entry[2] :])
        entry[2] = len(parts)
        return stream, stream.feed(new)

    def compute_arg_delta(self: Any, idx: int, raw_delta: str) -> str | None:
        # Once per token, nearly always of the call that began last.
        slot, open_ = self._tool_slots[idx], self.__dict__.get("_overlay_open")
        if open_ is not None and open_[0] is slot:
            parts = slot._args_parts
            if len(parts) == open_[2] + 1:
                open_[2] += 1
                return open_[1].feed(parts[-1]) or None
        stream, new = advance(self, idx)
        if stream is None:
            return old_compute(self, idx, raw_delta)
        return new or None

    def handle_tool_end(self: Any, event: Any, deltas: Any) -> None:
        # The engine closes an open call at the end of the output as well, with an event that has no text.
        self._overlay_call_closed = bool(event.value)
        old_tool_end(self, event, deltas)

    def flush_arg_converter(self: Any, idx: int) -> str | None:
        stream, new = advance(self, idx)
        if stream is None:
            return old_flush(self, idx)
        return new + stream.finish(getattr(self, "_overlay_call_closed", True)) or None

    def build_extracted_result(self: Any, *deltas: Any) -> Any:
        result = old_result(self, *deltas)
        if _syntax(self.parser_engine_config) is None:
            return result
        at = {slot.id: idx for idx, slot in enumerate(self._tool_slots) if slot.id}
        for call in result.tool_calls:
            if call.id in at:
                stream, _ = advance(self, at[call.id])
                if stream is not None:
                    stream.finish(False)
                    call.function.arguments = stream.json
        return result

    return {
        f"{_PARSER}._compute_arg_delta": compute_arg_delta,
        f"{_PARSER}._flush_arg_converter": flush_arg_converter,
        f"{_PARSER}._handle_tool_end": handle_tool_end,
        f"{_PARSER}._build_extracted_result": build_extracted_result,
    }


def probe(engine: Engine) -> Finding:
    """Stream a call whose last ``</parameter>`` is missing through the engine's Qwen3 parser, letter by letter."""
    if engine.source("parser.engine.parser_engine") is None:
        return Finding(Outcome.ABSENT, "this release has no parser engine")
    parser = engine.module("parser.qwen3").Qwen3Parser(NoVocabulary(), None)
    parser.initialize_streaming()
    text = "</think><tool_call>\n<function=f>\n<parameter=a>\nx\n</function>\n</tool_call>"
    arguments = ""
    for char in text:
        delta = parser._events_to_delta(parser._feed(char, []))
        for call in (delta.tool_calls or ()) if delta is not None else ():
            arguments += (call.function.arguments or "") if call.function is not None else ""
    evidence = f"a call without its last </parameter> streams the arguments {arguments!r}"
    if arguments == '{"a": "x"}':
        return Finding(Outcome.ABSENT, evidence)
    if arguments in ("", "{", "{}", '{"a": ', '{"a": "x'):
        return Finding(Outcome.PRESENT, evidence)
    return Finding(Outcome.UNKNOWN, evidence)
