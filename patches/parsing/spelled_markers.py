"""Markers are believed where the format's grammar confirms them, however they are spelled.

Symptom: a quantised model spells ``</think>`` or ``<tool_call>`` with sub-word tokens. While streaming, the tags and
everything after them come out as ``reasoning``, ``content`` stays empty, the tool call is lost and the finish reason
is ``stop``. And a model that only talks about ``<tool_call>`` or ``<function=x>`` loses the rest of its answer, or
calls a tool that nobody asked for.

Cause: once an engine has seen any token id, ``StreamingParserEngine._process_lex_tokens`` demotes every marker that
has a token id of its own, but was found in the text, to plain text; every other marker it believes at once.

Change: a marker is a candidate. It is real when the grammar of the installed parser configuration confirms it: an
opener when the head of a call follows, with the name of a tool of this request; a closer outside of values; the end
of reasoning unless it is quoted. Until that is known the text from the candidate on is held back; see
:class:`engine_overlay.text.grammar.Grammar` for the rules and the bound. A special token needs less than a spelled
marker: as an end of reasoning it is always real, and as an opener it stays one when its block is closed, or cut off
by the end, unless it is talked about. An aborted fragment of a marker right before the marker itself is dropped, and
a tool's name that was not closed ends with its block. What stays: special tokens that no format declares, formats
whose calls have other heads, and engines that no request stands behind.

Risk: an opener reaches the client up to the bound later than before, when it turns out to be plain text.
"""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Mapping
from typing import Any

from packaging.version import Version

from engine_overlay.engines import Engine
from engine_overlay.record import Finding, Outcome, Patch, Range, Target
from engine_overlay.serving.judging import Judge, offered
from engine_overlay.text.candidates import Candidates
from engine_overlay.text.grammar import Source, plain_name

_ENGINE = "parser.engine.streaming_parser_engine:StreamingParserEngine"
_PARSER = "parser.engine.parser_engine:ParserEngine"

PATCH = Patch(
    id="spelled_markers",
    engines={"vllm": Range("0.24.0", "0.33.0"), "aphrodite": Range("0.22.0", "0.24.1")},
    targets=(
        Target(path=f"{_ENGINE}._process_lex_tokens", bodies=("73b72f75a66f", "eda1ba9b67fe")),
        Target(path=f"{_ENGINE}._process_scanner_items", bodies=("83f0e2ec772a", "6f653afce28a")),
        Target(path=f"{_ENGINE}.feed", bodies=("8823f6c3f9de", "86aba56440ad", "8ae2385c06e9")),
        Target(
            path=f"{_ENGINE}.finish",
            bodies=("b0907789ff08", "176738234f99", "77a4f680e117", "9c92ac5e9a20", "6f666914b678"),
        ),
        Target(path=f"{_ENGINE}.reset", bodies=("919cb905d7f2", "2237ac0b1b56", "0389148c581c", "12f6d7a89c59")),
        Target(
            path=f"{_PARSER}.__init__",
            bodies=("801646f10a6e", "1e723734f66d", "7d64c13ea3ed", "b205a13470d2", "c3dc704abe56", "1c1978e096c4"),
        ),
        Target(path=f"{_PARSER}._check_skip_tool_parsing", bodies=("23dbaab7bf08", "3b5f8b726df7")),
        Target(
            path="parser.abstract_parser:Parser.__init__",
            bodies=("d74aa5706337", "ccec2bd28d3d", "fe8920910ec4", "9bc65d8ef6d4", "6a0d72c6dd1a"),
        ),
    ),
    reads=(
        Target(
            path=f"{_ENGINE}._on_terminal",
            bodies=(
                "a6fd71c2c49e",
                "c4cea0ffe76f",
                "46067404a60b",
                "ca71f15d063a",
                "e10870ef24c8",
                "8e83273ca743",
                "1e8323b191db",
            ),
        ),
        Target(path=f"{_ENGINE}._on_content", bodies=("79635fb8b8cf", "b3090fe706eb")),
        Target(
            path=f"{_ENGINE}._emit_for_state",
            bodies=("09d200719b46", "88baa55b6955", "28fd440100d0", "db1126beee60"),
        ),
        Target(path="parser.engine.parser_engine_config:Transition", bodies=("13cc857d6668",)),
        Target(path="parser.engine.parser_engine_config:ParserState", bodies=("c1c184b76a8f", "9aee8725cd81")),
        Target(path="parser.engine.token_id_scanner:PreLexedTerminal", bodies=("a40ebbbbf2d3",)),
        Target(path="parser.engine.incremental_lexer:LexToken", bodies=("194988b9f088", "fbdacaf66dcd")),
    ),
    upstream=(
        "https://github.com/vllm-project/vllm/issues/49205",
        "https://github.com/noonghunna/club-3090/issues/72",
    ),
    relationship="different approach",
    introduced_in={"vllm": "0.24.0", "aphrodite": "0.22.0"},
    fixed_in={"vllm": None, "aphrodite": None},
    superseded_by=None,
    group=None,
    requires=(),
    conflicts=(),
    after=(),
    default=True,
    default_reason="healthy streams are unchanged, and a spelled marker is believed only where the grammar confirms it",
    scope=("server",),
    native_alternative=None,
    remove_when="the engine confirms spelled markers itself",
)


def build(engine: Engine, originals: Mapping[str, Any]) -> Mapping[str, Any]:
    """The replacements: ``feed`` and the token loop are our own, the rest wraps."""
    module = engine.module("parser.engine.streaming_parser_engine")
    content_terminal = module.CONTENT_TERMINAL
    prelexed = engine.module("parser.engine.token_id_scanner").PreLexedTerminal
    # From 0.28 on the engine counts the tokens of each piece of text.
    counted = hasattr(module.StreamingParserEngine, "_record_reasoning_tokens")
    reasoning_chunk = module.EventType.REASONING_CHUNK
    reasoning_end, text_chunk = module.EventType.REASONING_END, module.EventType.TEXT_CHUNK
    tool_end, tool_start = module.EventType.TOOL_CALL_END, module.EventType.TOOL_CALL_START
    name_chunk = module.EventType.TOOL_NAME
    states = module.ParserState
    tool_name, tool_args = states.TOOL_NAME, states.TOOL_ARGS
    plain_states = frozenset({states.CONTENT, states.REASONING})
    judge = Judge(engine)
    old_finish = originals[f"{_ENGINE}.finish"]
    old_reset = originals[f"{_ENGINE}.reset"]
    old_check = originals[f"{_PARSER}._check_skip_tool_parsing"]
    old_engine_init = originals[f"{_PARSER}.__init__"]
    old_parser_init = originals["parser.abstract_parser:Parser.__init__"]

    def candidates(self: Any) -> Candidates:
        try:
            return self._overlay_candidates
        except AttributeError:
            self._overlay_candidates = made = Candidates()
            return made

    def on_terminal(self: Any, item: Any) -> list[Any]:
        if isinstance(item, prelexed):
            return self._on_terminal(item.terminal, item.text)
        return self._on_terminal(item.terminal, item.value, *((item.token_count,) if counted else ()))

    def on_text(self: Any, item: Any, text: str) -> list[Any]:
        return self._on_content(text, *((getattr(item, "token_count", 1),) if counted else ()))

    def unclosed_name(self: Any, item: Any) -> list[Any] | None:
        """What a marker does that ends a tool's name which was not closed; None for any other."""
        if (self.state, item.terminal) in self.config.transitions:
            return None
        for state in (states.TOOL_PREAMBLE, states.TOOL_BETWEEN, states.CONTENT):
            transition = self.config.transitions.get((state, item.terminal))
            if transition is None or transition.next_state in plain_states and state is not states.TOOL_PREAMBLE:
                continue
            started, ended = (kind in transition.events for kind in (module.EventType.TOOL_CALL_START, tool_end))
            if transition.next_state in self._TOOL_STATES and not started:
                continue
            before = [] if ended else [module.SemanticEvent(tool_end, tool_index=self.tool_index)]
            self.state = state
            return before + on_terminal(self, item)
        return None

    def run(self: Any, items: list[Any], final: bool = False) -> list[Any]:
        held = candidates(self)
        queue = held.pending + items if held.pending else items
        held.pending = []
        events: list[Any] = []
        for at, item in enumerate(queue):
            text = item.text if isinstance(item, prelexed) else item.value
            real: bool | None = item.terminal != content_terminal
            state = self.state
            named = state is tool_name
            new = unclosed_name(self, item) if named and real else None
            ends = state is tool_args and real and judge.ends_open_call(self, held, queue, at, final)
            if ends:
                self.state = states.TOOL_BETWEEN
                new = [module.SemanticEvent(tool_end, text, self.tool_index), *on_terminal(self, item)]
            if new is None:
                real = None if ends is None else real and judge(self, held, queue, at, final)
                if real is None:
                    held.pending = queue[at:]
                    break
                new = on_terminal(self, item) if real else on_text(self, item, text.strip() if named else text)
            if self.state is not state:
                held.new_block()
            elif new:
                held.seen(text)
            events += new
        return events

    def process_lex_tokens(self: Any, tokens: list[Any]) -> list[Any]:
        if len(tokens) == 1 and (item := tokens[0]).terminal == content_terminal and self.state is not tool_name:
            held = candidates(self)
            if not held.pending:
                text = item.value
                new = self._emit_for_state(text, item.token_count) if counted else self._emit_for_state(text)
                if new:
                    held.seen(text)
                return new
        return run(self, tokens if self._ever_had_token_ids else without_aborted(self, tokens))

    def without_aborted(self: Any, tokens: list[Any]) -> list[Any]:
        """Text without ids: drop an aborted fragment as :func:`drop_aborted_fragment` does, but only a telling one."""
        for item, marker in itertools.pairwise(tokens):
            if item.terminal != content_terminal or marker.terminal not in self._token_id_terminal_names:
                continue
            at = item.value.rfind(marker.value[0])
            if at >= 0 and len(item.value) - at > 2 and marker.value.startswith(item.value[at:]):
                item.value = item.value[:at]
        return tokens

    def process_scanner_items(self: Any, items: Any) -> list[Any]:
        events: list[Any] = []
        for item in items:
            if isinstance(item, prelexed):
                drop_aborted_fragment(self, item)
                events += self._process_lex_tokens(self._lexer.flush())
                events += run(self, [item])
            elif item.text:
                more = (item.token_texts, item.token_count) if counted else ()
                events += self._process_lex_tokens(self._lexer.feed(item.text, *more))
            elif counted and item.token_count:
                events += self._emit_for_state("", token_count=item.token_count)
        return events

    def drop_aborted_fragment(self: Any, item: Any) -> None:
        """``<tool_`` and then the real ``<tool_call>``: the model began to spell it, and thought better of it."""
        rest = self._lexer.buffer
        if self.skip_tool_parsing and (candidates(self).pending or self.state is states.CONTENT):
            # What may belong to the content goes to the next parser as it came, with its tokens.
            return
        if len(rest) > 1 and item.text.startswith(rest) and (self.state, item.terminal) in self.config.transitions:
            self._lexer.reset()

    def feed(self: Any, delta_text: str, delta_token_ids: Any) -> list[Any]:
        # Once per token: the usual piece of plain text costs less here than in the original.
        if delta_token_ids:
            self._ever_had_token_ids = True
        elif (whole := self.__dict__.get("_overlay_whole")) is not None and (ids := whole.ids_of(delta_text)):
            # A finished answer whose ids were laid ready (see full_with_token_ids).
            delta_token_ids, self._ever_had_token_ids = ids, True
        try:
            held, known = self._overlay_candidates, self._overlay_known_ids
        except AttributeError:
            held, known = candidates(self), known_ids(self)
        if (
            delta_text
            and not held.pending
            and not self._lexer.buffer
            and self.state is not tool_name
            and not self._scanner._deferred_terminals
            and self._lexer._literal_first_chars.isdisjoint(delta_text)
            and known.isdisjoint(delta_token_ids)
        ):
            held.seen(delta_text)
            if not counted:
                return self._emit_for_state(delta_text)
            events = self._emit_for_state(delta_text, len(delta_token_ids))
            for event in events:
                if event.type is reasoning_chunk:
                    self._reasoning_token_count += event.token_count
            return events
        if self.skip_tool_parsing:
            return feed_with_account(self, held, delta_text, delta_token_ids)
        scanner = self._scanner
        scanner._overlay_ids = delta_token_ids
        items = scanner.scan(delta_text, delta_token_ids)
        if len(items) == 1 and not held.pending and not isinstance(item := items[0], prelexed) and item.text:
            more = (item.token_texts, item.token_count) if counted else ()
            tokens = self._lexer.feed(item.text, *more)
            # Mostly one piece of text that only looked like the beginning of a marker, or nothing yet.
            events = self._process_lex_tokens(tokens) if tokens else tokens
        else:
            events = self._process_scanner_items(items)
        if counted and events:
            self._record_reasoning_tokens(events)
        return events

    def feed_with_account(self: Any, held: Candidates, delta_text: str, delta_token_ids: Any) -> list[Any]:
        """The slow way of :func:`feed` for an engine that looks for reasoning: another parser takes what follows it."""
        scanner = self._scanner
        if not held.pending and not self._lexer.buffer and not scanner._deferred_terminals:
            held.texts, held.ids = [], []
        held.texts.append(delta_text)
        held.ids += delta_token_ids
        held.content = None
        scanner._overlay_ids = delta_token_ids
        events = self._process_scanner_items(scanner.scan(delta_text, delta_token_ids))
        if counted and events:
            self._record_reasoning_tokens(events)
        for at, event in enumerate(events):
            if event.type is reasoning_end:
                # Where the tokens of the content begin, for the parser that comes next.
                content = "".join(e.value for e in events[at + 1 :] if e.type is text_chunk)
                content += "".join(i.text if isinstance(i, prelexed) else i.value for i in held.pending)
                held.content = content + self._lexer.buffer + scanner._deferred_post_text
                break
        return events

    def known_ids(self: Any) -> Any:
        ids = frozenset(self._resolved_token_ids) | frozenset(getattr(self, "_drop_token_ids", ()))
        self._overlay_known_ids = ids
        return ids

    def finish(self: Any) -> list[Any]:
        events = self._process_scanner_items(self._scanner.flush_pending())
        events += self._process_lex_tokens(self._lexer.flush())
        if candidates(self).pending:
            events += run(self, [], final=True)
        if self.state is tool_name:
            events = without_cut_name(self, events)
        if counted and events:
            self._record_reasoning_tokens(events)
        return events + old_finish(self)

    def without_cut_name(self: Any, events: list[Any]) -> list[Any]:
        """``max_tokens`` ended the answer inside a tool's name: its beginning is no tool, and nobody asked for it."""
        here = [e for e in events if e.tool_index == self.tool_index and e.type in (tool_start, name_chunk)]
        name = "".join(e.value for e in here if e.type is name_chunk).strip()
        # Kimi K2's functions.get_weather is a name only with its number.
        if not name or (plain_name(name) if ":" in name else name) in offered(self, Source.SPECIAL):
            return events
        return [event for event in events if event not in here]

    def reset(self: Any, initial_state: Any = None) -> None:
        old_reset(self, initial_state)
        self._overlay_candidates = Candidates()

    # In vllm 0.28 one engine may be the whole parser of a request; elsewhere there is always a DelegatingParser.
    unified = engine.name == "vllm" and engine.release == Version("0.28.0")

    def engine_init(self: Any, *args: Any, **kwargs: Any) -> None:
        old_engine_init(self, *args, **kwargs)
        if unified:
            self._overlay_serving, self._overlay_tools = True, self._tools
        # A weak reference, so that a finished request is freed at once and not by the cycle collector.
        self._engine._overlay_owner = weakref.ref(self)

    def parser_init(self: Any, tokenizer: Any, tools: Any = None, *args: Any, **kwargs: Any) -> None:
        old_parser_init(self, tokenizer, tools, *args, **kwargs)
        for parser in (self._reasoning_parser, self._tool_parser):
            inner = getattr(parser, "_parser_engine", None)
            if inner is not None:
                # The engine behind a reasoning parser is made without the tools, but a call may end the reasoning.
                inner._overlay_tools = tools
                inner._overlay_serving = True
                inner._overlay_no_reasoning = self._reasoning_parser is None

    def check_skip_tool_parsing(self: Any, request: Any) -> None:
        # Once per delta, and always with the same request.
        if self.__dict__.get("_overlay_request") is request:
            return
        self._overlay_request = request
        old_check(self, request)
        if not self._tools:
            # A chat request without tools has the tool choice "none"; one of the Responses API need not.
            none = getattr(request, "tool_choice", None) == "none"
            self._overlay_no_tools = none or type(request).__name__ == "ResponsesRequest"

    return {
        f"{_ENGINE}._process_lex_tokens": process_lex_tokens,
        f"{_ENGINE}._process_scanner_items": process_scanner_items,
        f"{_ENGINE}.feed": feed,
        f"{_ENGINE}.finish": finish,
        f"{_ENGINE}.reset": reset,
        f"{_PARSER}.__init__": engine_init,
        f"{_PARSER}._check_skip_tool_parsing": check_skip_tool_parsing,
        "parser.abstract_parser:Parser.__init__": parser_init,
    }


class _Tokenizer:
    """Four markers as special tokens, and every other id one character: enough for the engine's own classes."""

    markers = ("<think>", "</think>", "<tool_call>", "</tool_call>")
    all_special_tokens: tuple[str, ...] = ()
    all_special_ids: tuple[int, ...] = ()

    def get_vocab(self) -> dict[str, int]:
        return {marker: 0x110000 + i for i, marker in enumerate(self.markers)}

    def decode(self, ids: Any, **_: Any) -> str:
        return "".join(self.markers[i - 0x110000] if i >= 0x110000 else chr(i) for i in ids)


def probe(engine: Engine) -> Finding:
    """Stream an answer whose tags are spelled letter by letter through the engine's Qwen3 parser engine."""
    if engine.source("parser.engine.streaming_parser_engine") is None:
        return Finding(Outcome.ABSENT, "this release has no parser engine")
    parser = engine.module("parser.qwen3")
    machine = engine.module("parser.engine.streaming_parser_engine").StreamingParserEngine
    events = []
    streaming = machine(parser.qwen3_config(thinking=True), _Tokenizer())
    for char in "why</think>Because.":
        events += streaming.feed(char, [ord(char)])
    events += streaming.finish()
    content = "".join(e.value for e in events if e.type.name == "TEXT_CHUNK")
    reasoning = "".join(e.value for e in events if e.type.name == "REASONING_CHUNK")
    evidence = f"'why</think>Because.' letter by letter gives reasoning {reasoning!r} and content {content!r}"
    if (reasoning, content) == ("why", "Because."):
        return Finding(Outcome.ABSENT, evidence)
    if (reasoning, content) == ("why</think>Because.", ""):
        return Finding(Outcome.PRESENT, evidence)
    return Finding(Outcome.UNKNOWN, evidence)
