"""The formats that made-up dialogues come in: parsers, markers, and how each writes calls."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

Part = tuple[str, str]
"""(kind, text): ``real`` is a marker, as a special token or spelled; ``special`` a special token that is only talked
about; ``text`` everything else, whose markers are never special tokens."""


@dataclass(frozen=True)
class Format:
    """The markers of one pair of parsers; ``words`` are more text to talk about. Without reasoning ``end`` is empty."""

    reasoning_parser: str | None
    tool_parser: str | None
    end: str
    opener: str
    closer: str
    writer: str
    words: tuple[str, ...]
    start: str = "<think>"
    more: tuple[str, ...] = field(default=())
    tail: bool = True
    """Whether text behind calls is content; the engines drop it where one block holds all calls of an answer."""
    cut: bool = True
    """Whether reasoning without its end is reasoning in a whole answer too."""

    @property
    def markers(self) -> tuple[str, ...]:
        return tuple(m for m in (self.start, self.end, self.opener, self.closer, *self.more) if m)


def _raw(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _xml(form: Format, calls: list[tuple[str, dict[str, Any]]]) -> list[list[Part]]:
    def one(name: str, arguments: dict[str, Any]) -> list[Part]:
        body = "".join(f"<parameter={k}>\n{_raw(v)}\n</parameter>\n" for k, v in arguments.items())
        return [("real", form.opener), ("text", f"\n<function={name}>\n{body}</function>\n"), ("real", form.closer)]

    return [one(*call) for call in calls]


def _compact(form: Format, calls: list[tuple[str, dict[str, Any]]]) -> list[list[Part]]:
    def one(name: str, arguments: dict[str, Any]) -> list[Part]:
        body = "".join(f"<parameter={k}>{_raw(v)}</parameter>\n" for k, v in arguments.items())
        return [("real", form.opener), ("text", f"\n<function={name}>\n{body}</function>\n"), ("real", form.closer)]

    return [one(*call) for call in calls]


def _elements(form: Format, calls: list[tuple[str, dict[str, Any]]]) -> list[list[Part]]:
    def one(name: str, arguments: dict[str, Any]) -> str:
        body = "".join(f"{_M3}<{k}>{_raw(v)}{_M3}</{k}>\n" for k, v in arguments.items())
        return f'\n{_M3}<invoke name="{name}">\n{body}{_M3}</invoke>\n'

    return [[("real", form.opener), ("text", "".join(one(*call) for call in calls)), ("real", form.closer)]]


def _glm(form: Format, calls: list[tuple[str, dict[str, Any]]]) -> list[list[Part]]:
    def one(name: str, arguments: dict[str, Any]) -> list[Part]:
        body = "".join(f"<arg_key>{k}</arg_key>\n<arg_value>{_raw(v)}</arg_value>\n" for k, v in arguments.items())
        return [("real", form.opener), ("text", f"{name}\n{body}"), ("real", form.closer)]

    return [one(*call) for call in calls]


def _minimax(form: Format, calls: list[tuple[str, dict[str, Any]]]) -> list[list[Part]]:
    def one(name: str, arguments: dict[str, Any]) -> str:
        body = "".join(f'<parameter name="{k}">{_raw(v)}</parameter>\n' for k, v in arguments.items())
        return f'\n<invoke name="{name}">\n{body}</invoke>\n'

    return [[("real", form.opener), ("text", "".join(one(*call) for call in calls)), ("real", form.closer)]]


def _dsml(form: Format, calls: list[tuple[str, dict[str, Any]]]) -> list[list[Part]]:
    gap = " " if form.opener.startswith("<｜DSML｜ ") else ""

    def parameter(name: str, value: Any) -> str:
        kind = "true" if isinstance(value, str) else "false"
        return f'<｜DSML｜{gap}parameter name="{name}" string="{kind}">{_raw(value)}</｜DSML｜{gap}parameter>\n'

    def one(name: str, arguments: dict[str, Any]) -> str:
        body = "".join(parameter(*item) for item in arguments.items())
        return f'\n<｜DSML｜{gap}invoke name="{name}">\n{body}</｜DSML｜{gap}invoke>\n'

    return [[("real", form.opener), ("text", "".join(one(*call) for call in calls)), ("real", form.closer)]]


def _kimi(form: Format, calls: list[tuple[str, dict[str, Any]]]) -> list[list[Part]]:
    parts: list[Part] = [("real", form.opener)]
    for n, (name, arguments) in enumerate(calls):
        parts += [("real", form.more[0]), ("text", f"functions.{name}:{n}"), ("real", form.more[1])]
        parts += [("text", json.dumps(arguments, ensure_ascii=False)), ("real", form.more[2])]
    return [[*parts, ("real", form.closer)]]


def _hermes(form: Format, calls: list[tuple[str, dict[str, Any]]]) -> list[list[Part]]:
    def one(name: str, arguments: dict[str, Any]) -> list[Part]:
        body = json.dumps({"name": name, "arguments": arguments}, ensure_ascii=False)
        return [("real", form.opener), ("text", f"\n{body}\n"), ("real", form.closer)]

    return [one(*call) for call in calls]


WRITERS = {
    "xml": _xml,
    "compact": _compact,
    "elements": _elements,
    "glm": _glm,
    "minimax": _minimax,
    "dsml": _dsml,
    "kimi": _kimi,
    "hermes": _hermes,
}
_XML_WORDS = ("<function=", "</parameter>", "<function=get_weather>", "</function>")
_TOOL = ("<tool_call>", "</tool_call>")
_KIMI = tuple(f"<|tool_call{name}|>" for name in ("_begin", "_argument_begin", "_end"))
_M3 = "]<]minimax[>["
_DSML = ("<｜DSML｜tool_calls>", "</｜DSML｜tool_calls>")
FORMATS = {
    "qwen3": Format("qwen3", "qwen3_coder", "</think>", *_TOOL, "xml", _XML_WORDS),
    "nemotron_v3": Format("nemotron_v3", "qwen3_coder", "</think>", *_TOOL, "xml", _XML_WORDS),
    "glm47": Format("glm45", "glm47", "</think>", *_TOOL, "glm", ("<arg_key>", "</arg_value>")),
    "minimax_m2": Format(
        "minimax_m2",
        "minimax_m2",
        "</think>",
        "<minimax:tool_call>",
        "</minimax:tool_call>",
        "minimax",
        ('<invoke name="', "</parameter>"),
    ),
    "seed_oss": Format(
        "seed_oss",
        "seed_oss",
        "</seed:think>",
        "<seed:tool_call>",
        "</seed:tool_call>",
        "xml",
        _XML_WORDS,
        start="<seed:think>",
    ),
    "deepseek_v4": Format("deepseek_v4", "deepseek_v4", "</think>", *_DSML, "dsml", ("<｜DSML｜invoke",), tail=False),
    "kimi_k2": Format(
        "kimi_k2",
        "kimi_k2",
        "</think>",
        "<|tool_calls_section_begin|>",
        "<|tool_calls_section_end|>",
        "kimi",
        (),
        more=_KIMI,
        tail=False,
    ),
    "step3p5": Format("step3p5", "step3p5", "</think>", *_TOOL, "xml", _XML_WORDS),
    "mimo": Format("mimo", "mimo", "</think>", *_TOOL, "compact", _XML_WORDS),
    "ling3": Format("ling3", "ling3", "</think>", *_TOOL, "glm", ("<arg_key>", "</arg_value>"), cut=False),
    "deepseek_v41": Format(
        "deepseek_v41",
        "deepseek_v41",
        "</think>",
        "<｜DSML｜ calls>",
        "</｜DSML｜ calls>",
        "dsml",
        ("<｜DSML｜ invoke",),
        tail=False,
    ),
    "deepseek_v32": Format(
        None,
        "deepseek_v32",
        "",
        "<｜DSML｜function_calls>",
        "</｜DSML｜function_calls>",
        "dsml",
        ("<｜DSML｜invoke",),
        start="",
        tail=False,
    ),
    "minimax_m3": Format(
        None, "minimax_m3", "", f"{_M3}<tool_call>", f"{_M3}</tool_call>", "elements", (f"{_M3}<invoke",), "", (), False
    ),
    "hermes": Format("qwen3", "hermes", "</think>", *_TOOL, "hermes", ('{"name":', '"arguments"')),
    "granite4": Format(None, "granite4", "", *_TOOL, "hermes", ('{"name":', '"arguments"'), start=""),
    "longcat": Format(
        None, "longcat", "", "<longcat_tool_call>", "</longcat_tool_call>", "hermes", ('{"name":',), start=""
    ),
    "qwen3_no_tools": Format("qwen3", None, "</think>", *_TOOL, "xml", _XML_WORDS),
}
