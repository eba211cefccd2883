"""Answers of models, how they are asked for, and what the client must get."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

TOOLS = [
    {
        "name": "get_weather",
        "description": "The weather of a city",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}},
    },
    {"name": "now", "description": "The time", "parameters": {"type": "object", "properties": {}}},
]

WITHOUT_V4 = ("vllm-0.18.0", "vllm-0.18.1", "vllm-0.19.0", "vllm-0.19.1", "aphrodite_engine-0.20.0")
"""Releases that have no parsers for DeepSeek V4."""

THINK = ["<think>", "</think>"]
_KIMI = ["section_begin", "section_end"], ["begin", "argument_begin", "end"]
KIMI = [f"<|tool_calls_{x}|>" for x in _KIMI[0]] + [f"<|tool_call_{x}|>" for x in _KIMI[1]]
ARGS = ["<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>"]
ATOMIC = [*THINK, "<tool_call>", "</tool_call>", *KIMI, *ARGS, "<minimax:tool_call>", "</minimax:tool_call>"]

_ATOMS = re.compile("(" + "|".join(map(re.escape, ATOMIC)) + ")")
_WORDS = re.compile(r"\s*\w+|\s+|[^\w\s]")


def pieces_of(text: str, spelled: bool) -> list[str]:
    """The tokens of a text, with the markers as tokens of their own or spelled with ordinary ones."""
    if spelled:
        return _WORDS.findall(text)
    parts = _ATOMS.split(text)
    return [piece for part in parts for piece in ([part] if part in ATOMIC else _WORDS.findall(part))]


_DSML = (
    '<｜DSML｜{0}>\n<｜DSML｜invoke name="get_weather">\n<｜DSML｜parameter name="city" string="true">Ulm'
    '</｜DSML｜parameter>\n<｜DSML｜parameter name="days" string="false">3</｜DSML｜parameter>\n</｜DSML｜invoke>\n'
    "</｜DSML｜{0}>"
)
CALLS = {
    "qwen3_xml": "<tool_call>\n<function=get_weather>\n<parameter=city>\nUlm\n</parameter>\n<parameter=days>\n3\n"
    "</parameter>\n</function>\n</tool_call>",
    "hermes": '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Ulm", "days": 3}}\n</tool_call>',
    "glm": "<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>Ulm</arg_value>\n<arg_key>days</arg_key>\n"
    "<arg_value>3</arg_value>\n</tool_call>",
    "kimi_k2": "<|tool_calls_section_begin|><|tool_call_begin|>functions.get_weather:4<|tool_call_argument_begin|>"
    '{"city": "Ulm", "days": 3}<|tool_call_end|><|tool_calls_section_end|>',
    "minimax_m2": '<minimax:tool_call>\n<invoke name="get_weather">\n<parameter name="city">Ulm</parameter>\n'
    '<parameter name="days">3</parameter>\n</invoke>\n</minimax:tool_call>',
    "deepseek_v32": _DSML.format("function_calls"),
    "deepseek_v4": _DSML.format("tool_calls"),
}
CALLED = [["get_weather", {"city": "Ulm", "days": 3}]]

STOCK = {
    "qwen3_xml": ("qwen3", "qwen3_coder"),
    "hermes": ("qwen3", "hermes"),
    "glm": ("glm45", "glm47"),
    "kimi_k2": ("kimi_k2", "kimi_k2"),
    "minimax_m2": ("minimax_m2", "minimax_m2"),
    "deepseek_v32": ("deepseek_v3", "deepseek_v32"),
    "deepseek_v4": ("deepseek_v4", "deepseek_v4"),
}
NAMES = {
    "qwen3_engine": "qwen3_xml",
    "hermes_engine": "hermes",
    "deepseek_r1_engine": "hermes",
    "glm_engine": "glm",
    "kimi_k2_engine": "kimi_k2",
    "minimax_m2_engine": "minimax_m2",
    "deepseek_v32_engine": "deepseek_v32",
    "deepseek_v4_engine": "deepseek_v4",
}


@dataclass(frozen=True)
class Scenario:
    """One request and the answers of its choices. ``want`` is what each choice must give, in every mode.

    ``by_name``: asked with one of the own parsers' names, or with the stock names that go with it.
    """

    name: str
    texts: tuple[str, ...]
    want: tuple[dict[str, Any], ...]
    reasoning: str | None = "qwen3"
    tools: str | None = "qwen3_coder"
    declare: bool = False
    request: dict[str, Any] = field(default_factory=dict)
    prompt: str = "<think>\n"
    spelled: bool = False
    step: int = 1
    finish: str = "stop"
    id_type: str = "random"
    conversation: tuple[dict[str, Any], ...] = ()
    responses: bool = False
    by_name: bool = False


def asked_of(label: str, scenarios: list[Scenario]) -> list[Scenario]:
    """Those whose parsers this release has."""
    return [s for s in scenarios if label not in WITHOUT_V4 or s.tools not in ("deepseek_v4", "deepseek_v4_engine")]


def want(reasoning: str = "", content: str = "", calls: Any = (), finish: str | None = None) -> dict[str, Any]:
    """``finish`` is by default what goes with the calls."""
    calls = [list(call) for call in calls]
    return {
        "reasoning": reasoning,
        "content": content,
        "calls": calls,
        "finish": finish or ("tool_calls" if calls else "stop"),
    }


_NAMED = {"tool_choice": {"type": "function", "function": {"name": "get_weather"}}}
_REQUIRED = {"tool_choice": "required"}
_CALL = CALLS["qwen3_xml"]


def _formats() -> list[Scenario]:
    made = []
    pairs = [(f"stock {calls}", *STOCK[calls], calls) for calls in STOCK]
    pairs += [(name, name, name, calls) for name, calls in NAMES.items()]
    for title, reasoning, tools, calls in pairs:
        text = f"I see.</think>\n\nLook: {CALLS[calls]}"
        for spelled in (False, True):
            for step in (1, 4, 1000):
                made.append(
                    Scenario(
                        f"{title} {'spelled' if spelled else 'whole'} by {step}",
                        (text,),
                        (want("I see.", "Look:", CALLED),),
                        reasoning,
                        tools,
                        spelled=spelled,
                        step=step,
                        responses=True,
                        by_name=step == 4,
                    )
                )
    return made


SCENARIOS = [
    *_formats(),
    Scenario(
        "required as guided JSON",
        ('I see.</think>\n\n[{"name": "get_weather", "parameters": {"city": "Ulm", "days": 3}}]',),
        (want("I see.", "", CALLED),),
        request=_REQUIRED,
        responses=True,
    ),
    Scenario(
        "two required as guided JSON",
        (
            'I see.</think>[{"name": "get_weather", "parameters": {"city": "Ulm", "days": 3}}, {"name": "now", '
            '"parameters": {}}]',
        ),
        (want("I see.", "", [*CALLED, ["now", {}]]),),
        request=_REQUIRED,
        spelled=True,
        step=3,
    ),
    Scenario(
        "named as guided JSON",
        ('I see.</think>\n\n{"city": "Ulm", "days": 3}',),
        (want("I see.", "", CALLED, "stop"),),
        request=_NAMED,
        responses=True,
    ),
    Scenario(
        "named as markup",
        (f"I see.</think>\n\n{_CALL}",),
        (want("I see.", "", CALLED, "stop"),),
        request=_NAMED,
        spelled=True,
        responses=True,
    ),
    Scenario(
        "required as markup",
        (f"I see.</think>\n\n{_CALL}",),
        (want("I see.", "", CALLED),),
        request=_REQUIRED,
        responses=True,
    ),
    Scenario(
        "required as markup, glm",
        (f"I see.</think>{CALLS['glm']}",),
        (want("I see.", "", CALLED),),
        "glm45",
        "glm45",
        request=_REQUIRED,
        responses=True,
    ),
    Scenario("required and no call", ("I see.</think>\n\nSorry.",), (want("I see.", "Sorry."),), request=_REQUIRED),
    Scenario("named and no call", ("I see.</think>\n\nSorry.",), (want("I see.", "Sorry."),), request=_NAMED),
    Scenario(
        "named, cut in its reasoning",
        ("I see",),
        (want("I see", "", (), "length"),),
        request=_NAMED,
        finish="length",
        responses=True,
    ),
    Scenario(
        "required, cut in its reasoning",
        ("I see",),
        (want("I see", "", (), "length"),),
        request=_REQUIRED,
        finish="length",
        responses=True,
    ),
    Scenario(
        "three choices",
        (f"I see.</think>{_CALL}", "Hm.</think>\n\nFour.", f"So.</think>Done.\n{_CALL}\n{CALLS['qwen3_xml']}"),
        (want("I see.", "", CALLED), want("Hm.", "Four."), want("So.", "Done.", CALLED * 2)),
        spelled=True,
    ),
    Scenario(
        "three required choices, one without a call",
        (f"I see.</think>{_CALL}", "Hm.</think>\n\nFour.", f"So.</think>\n{_CALL}"),
        (want("I see.", "", CALLED), want("Hm.", "Four."), want("So.", "", CALLED)),
        request=_REQUIRED,
    ),
    Scenario(
        "only one call wanted",
        (f"I see.</think>{_CALL}\n{_CALL}",),
        (want("I see.", "", CALLED),),
        request={"parallel_tool_calls": False},
        spelled=True,
    ),
    Scenario(
        "reasoning not wanted",
        (f"I see.</think>\n\nLook.\n{_CALL}",),
        (want("", "Look.", CALLED),),
        request={"include_reasoning": False},
        spelled=True,
    ),
    Scenario(
        "reasoning not wanted, guided from the first token",
        ('[{"name": "get_weather", "parameters": {"city": "Ulm", "days": 3}}]',),
        (want("", "", CALLED),),
        request={"include_reasoning": False, **_REQUIRED},
    ),
    Scenario(
        "thinking off by the request",
        (f"Look.\n{_CALL}",),
        (want("", "Look.", CALLED),),
        request={"chat_template_kwargs": {"enable_thinking": False}},
        prompt="<think>\n\n</think>\n\n",
        spelled=True,
    ),
    Scenario(
        "thinking closed by the prompt",
        (f"Look.\n{_CALL}",),
        (want("", "Look.", CALLED),),
        prompt="<think>\n\n</think>\n\n",
        spelled=True,
        responses=True,
    ),
    Scenario(
        "thinking off, kimi",
        (f"Look.{CALLS['kimi_k2']}",),
        (want("", "Look.", CALLED),),
        "kimi_k2",
        "kimi_k2",
        request={"chat_template_kwargs": {"thinking": False}},
        prompt="hi",
    ),
    Scenario(
        "tool choice none",
        (f"I see.</think>Text.\n{_CALL}",),
        (want("I see.", "Text."),),
        request={"tool_choice": "none"},
    ),
    Scenario(
        "no tool parser",
        (f"I see.</think>{_CALL}",),
        (want("I see.", _CALL),),
        tools=None,
        spelled=True,
        responses=True,
    ),
    Scenario(
        "no tool parser, deepseek_r1",
        ("I see.</think>\n\nFour.",),
        (want("I see.", "Four."),),
        "deepseek_r1",
        None,
        spelled=True,
        step=2,
        responses=True,
    ),
    Scenario(
        "no reasoning parser",
        (f"Look. {_CALL}",),
        (want("", "Look.", CALLED),),
        None,
        prompt="hi",
        spelled=True,
        responses=True,
    ),
    Scenario(
        "no reasoning parser, hermes",
        (f"Look. {CALLS['hermes']}",),
        (want("", "Look.", CALLED),),
        None,
        "hermes",
        prompt="hi",
        step=5,
        responses=True,
    ),
    Scenario(
        "cut in an argument",
        (
            "I see.</think>\n\n<tool_call>\n<function=get_weather>\n<parameter=days>\n3\n</parameter>\n"
            "<parameter=city>\nU",
        ),
        (want("I see.", "", [["get_weather", {"days": 3, "city": "U"}]], finish="length"),),
        finish="length",
        spelled=True,
    ),
    Scenario(
        "ids of the conversation",
        (f"I see.</think>{_CALL}\n{_CALL}",),
        (want("I see.", "", CALLED * 2) | {"ids": ["functions.get_weather:1", "functions.get_weather:2"]},),
        id_type="kimi_k2",
        conversation=({"role": "assistant", "content": "", "tool_calls": [{}]}, {"role": "user", "content": "more"}),
    ),
    Scenario(
        "ids of the model",
        (f"I see.</think>{CALLS['kimi_k2']}",),
        (want("I see.", "", CALLED) | {"ids": ["functions.get_weather:4"]},),
        "kimi_k2",
        "kimi_k2",
        id_type="kimi_k2",
    ),
    Scenario(
        "log probabilities of every token",
        (f"I see.</think>\n\nLook, a < b. {_CALL}",),
        (
            want("I see.", "Look, a < b.", CALLED)
            # And that of the end token.
            | {"logprobs": len(pieces_of(f"I see.</think>\n\nLook, a < b. {_CALL}", spelled=True)) + 1},
        ),
        request={"logprobs": True, "top_logprobs": 0},
        spelled=True,
    ),
    Scenario(
        "mentions",
        ("The tag `</think>` ends it.</think>\n\nWrite `<tool_call>` to call.",),
        (want("The tag `</think>` ends it.", "Write `<tool_call>` to call."),),
        spelled=True,
        step=3,
        responses=True,
    ),
]
