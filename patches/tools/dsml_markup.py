"""DeepSeek's DSML as its models really write it: calls without their wrapper, other wrappers, left-over closers.

Symptom: a call that begins with ``<｜DSML｜invoke name="...">`` and has no ``<｜DSML｜tool_calls>`` in front of it,
or a ``<｜DSML｜toolcalls>``, stands in ``content`` as markup, and the finish reason is ``stop``. ``</｜DSML｜invoke>``
and other closers that are left over behind a call or at the end of an answer stand there too; an agent that gets them
back in its next prompt writes more of them.

Cause: the parser configurations of ``deepseek_v4``, ``deepseek_v32`` and ``deepseek_v41`` know the markup of the
template alone. Later releases know two more wrappers and the missing one; none drops closers.

Change: a parser engine whose configuration writes DSML gets one with more markers and transitions: the wrappers that
models write, a call without one, a closer that closes nothing, a call that begins where the last one was not closed.
Whether a marker is real is judged by ``spelled_markers``: an opener needs the name of a declared tool and the
beginning of its arguments, and none is real in quotes, inline code, a code fence or a sentence about it; the closers
of a call that was taken for text are text. What stays: text behind calls, a call without a wrapper
inside the reasoning, and parsers that no request stands behind.

Risk: a closer at the end of a line that is meant as text, and neither quoted nor in a sentence, is lost.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from engine_overlay.engines import Engine
from engine_overlay.record import Finding, Outcome, Patch, Range, Target
from engine_overlay.serving.judging import ADDED
from engine_overlay.text import handoff
from engine_overlay.text.dsml import BAR, WRAPPERS, closer, opener

_INIT = "parser.engine.streaming_parser_engine:StreamingParserEngine.__init__"

PATCH = Patch(
    id="dsml_markup",
    engines={"vllm": Range("0.25.0", "0.33.0"), "aphrodite": Range("0.22.0", "0.24.1")},
    targets=(Target(path=_INIT, bodies=("66bf51b7d735", "a58c28070a59", "c223935d73c9")),),
    reads=(
        Target(path="parser.deepseek_v4:deepseek_v4_config", bodies=("cf39ce83fe24", "fe38a86a2d14", "51f41d383d2a")),
        Target(path="parser.deepseek_v32:deepseek_v32_config", bodies=("baf956cc4aaa", "8e4397b38a42", "359455288abc")),
        Target(
            path="parser.engine.streaming_parser_engine:StreamingParserEngine._apply_transition",
            bodies=("5d12735a384c", "bf8f5f0362ec", "2207b261f53f", "dfd0a7672763"),
        ),
    ),
    upstream=(
        "https://github.com/vllm-project/vllm/pull/54686",
        "https://github.com/vllm-project/vllm/issues/48931",
    ),
    relationship="different approach",
    introduced_in={"vllm": "0.25.0", "aphrodite": "0.22.0"},
    fixed_in={"vllm": None, "aphrodite": None},
    superseded_by=None,
    group=None,
    requires=("spelled_markers",),
    conflicts=(),
    after=(),
    default=True,
    default_reason="answers in the template's own markup are the same, and a marker counts only where it is confirmed",
    scope=("server",),
    native_alternative=None,
    remove_when="the engine reads calls without a wrapper and drops closers that close nothing",
)


def _wider(config: Any, module: Any) -> Any:
    """The configuration with the markup of :mod:`engine_overlay.text.dsml`, kept with the engine's own; itself for
    every other format.
    """
    known = vars(config).get("_engine_overlay_dsml")
    if known is not None:
        return known
    wider, invoke = config, config.terminals.get("INVOKE_PREFIX")
    if isinstance(invoke, str) and invoke.startswith(f"<{BAR}"):
        wider = _widened(config, module, " " if invoke.startswith(f"<{BAR} ") else "")
    # The config is frozen, shared by all requests, and lives as long as its parser class.
    object.__setattr__(config, "_engine_overlay_dsml", wider)
    return wider


def _widened(config: Any, module: Any, gap: str) -> Any:
    states, kinds, make = module.ParserState, module.EventType, module.Transition
    terminals, moves = dict(config.terminals), dict(config.transitions)
    terminals.setdefault("PARAM_START", opener("parameter", gap)[:-1])
    given = {one for name in terminals for one in _spellings(terminals[name])}
    for terminal, tag in (("TOOL_START", opener), ("TOOL_END", closer)):
        for name in WRAPPERS:
            if (spelled := tag(name, gap)) in given:
                continue
            terminals[f"{terminal} {name}"] = spelled
            for (state, of), move in config.transitions.items():
                if of == terminal:
                    moves[state, f"{terminal} {name}"] = move
    starts = [name for name in terminals if name.startswith("TOOL_START")]
    closers = [name for name in terminals if name.startswith(("TOOL_END", "INVOKE_END", "PARAM_CLOSE"))]
    start, end = kinds.TOOL_CALL_START, kinds.TOOL_CALL_END
    again = {(states.TOOL_BETWEEN, name): make(states.TOOL_PREAMBLE, ()) for name in starts}
    left_over = {(states.CONTENT, name): make(states.CONTENT, ()) for name in closers}
    argument = make(states.TOOL_ARGS, (kinds.ARG_VALUE_CHUNK,))
    more = {
        **again,
        **left_over,
        (states.CONTENT, "INVOKE_PREFIX"): make(states.TOOL_NAME, (start,)),
        (states.TOOL_NAME, "INVOKE_END"): make(states.TOOL_BETWEEN, (end,)),
        (states.TOOL_ARGS, "INVOKE_PREFIX"): make(states.TOOL_NAME, (end, start)),
        # As before, they are text of the arguments; that they are markers tells where arguments begin.
        (states.TOOL_ARGS, "PARAM_START"): argument,
        (states.TOOL_ARGS, "PARAM_CLOSE"): argument,
    }
    made = replace(config, terminals=terminals, transitions=more | moves)
    object.__setattr__(made, ADDED, made.transitions.keys() - config.transitions.keys())
    return made


def _spellings(value: Any) -> tuple[str, ...]:
    return (value,) if isinstance(value, str) else tuple(value)


def build(engine: Engine, originals: Mapping[str, Any]) -> Mapping[str, Any]:
    module = engine.module("parser.engine.streaming_parser_engine")
    original = originals[_INIT]

    def init(self: Any, config: Any, *args: Any, **kwargs: Any) -> None:
        wider = _wider(config, module)
        original(self, wider, *args, **kwargs)
        if wider is not config:
            # From vllm 0.28 on, a pass that looks for no calls drops what leaves a call, where it stands alone.
            self._tool_exit_terminals = frozenset()

    return {_INIT: init}


def probe(engine: Engine) -> Finding:
    """Parse an answer that ends with a left-over closer by the engine's parser for DeepSeek V4."""
    if engine.source("parser.deepseek_v4") is None:
        return Finding(Outcome.ABSENT, "this release has no parser engine for DSML")
    tokenizer = handoff.tiny_tokenizer(("Hm",), ("<think>", "</think>"))
    protocol = engine.module("entrypoints.openai.chat_completion.protocol")
    tool = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
    request = protocol.ChatCompletionRequest(model="m", messages=[{"role": "user", "content": "?"}], tools=[tool])
    manager = engine.module("parser.parser_manager").ParserManager
    parser = manager.get_parser(tool_parser_name="deepseek_v4", enable_auto_tools=True)(tokenizer, request.tools)
    _, content, _ = parser.parse(f"Done.{closer('invoke')}", request, True)
    evidence = f"an answer with a closer of no call at its end has the content {content!r}"
    if content == "Done.":
        return Finding(Outcome.ABSENT, evidence)
    return Finding(Outcome.PRESENT if BAR in (content or "") else Outcome.UNKNOWN, evidence)
