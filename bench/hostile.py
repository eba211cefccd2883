"""Hostile texts for parsers: what is repeated, where in an answer it stands, and how each format writes that place.

Engine-free. A text is a list of tokens, each with its text and whether it is a special token.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

SIZE = 4
"""Characters of a token that is no marker."""

TOOL = {
    "name": "write_file",
    "parameters": {
        "type": "object",
        "properties": {"content": {"type": "string"}, "days": {"type": "integer"}, "more": {"type": "object"}},
    },
}


class Token(NamedTuple):
    """One token of an answer."""

    text: str
    special: bool


@dataclass(frozen=True)
class Shape:
    """How a pair of parsers writes an answer.

    ``begin`` and ``close`` are special tokens around a call, ``before_name`` to ``after_call`` the texts between them:
    the name of a tool goes between the first two, arguments between the next, a value between the two of ``value``.
    ``ends`` are further ends of its parts.
    """

    reasoning: str | None
    tools: str | None
    end: str
    begin: tuple[str, ...]
    close: tuple[str, ...]
    before_name: str
    after_name: str
    value: tuple[str, str]
    after_call: str
    ends: tuple[str, ...]
    start: str = "<think>"
    middle: tuple[str, ...] = ()

    @property
    def markers(self) -> tuple[str, ...]:
        """Its special tokens."""
        return tuple(filter(None, dict.fromkeys((self.start, self.end, *self.begin, *self.middle, *self.close))))


_XML = ("\n<function=", ">\n", ("<parameter=content>\n", "\n</parameter>\n"), "</function>\n")
_XML_ENDS = ("</parameter>", "</function>", "<parameter=content>", "<function=write_file>")
_JSON = ('\n{"name": "', '", "arguments": {', ('"content": "', '"'), "}}\n")
_JSON_ENDS = ('"', '"}', '{"name": "write_file", "arguments": {')
_GLM = ("", "\n", ("<arg_key>content</arg_key>\n<arg_value>", "</arg_value>\n"), "")
_GLM_ENDS = ("</arg_value>", "<arg_key>", "<arg_key>content</arg_key>\n<arg_value>")
_BAR = "｜DSML｜"
_DSML = (
    f'\n<{_BAR}invoke name="',
    '">\n',
    (f'<{_BAR}parameter name="content" string="true">', f"</{_BAR}parameter>\n"),
    f"</{_BAR}invoke>\n",
)
_DSML_ENDS = (f"</{_BAR}parameter>", f"</{_BAR}invoke>", f'<{_BAR}invoke name="write_file">')
_CALL, _CALL_END = ("<tool_call>",), ("</tool_call>",)

SHAPES: dict[str, Shape] = {
    "qwen3": Shape("qwen3", "qwen3_coder", "</think>", _CALL, _CALL_END, *_XML, _XML_ENDS),
    "hermes": Shape("qwen3", "hermes", "</think>", _CALL, _CALL_END, *_JSON, _JSON_ENDS),
    "deepseek_r1": Shape("deepseek_r1", "hermes", "</think>", _CALL, _CALL_END, *_JSON, _JSON_ENDS),
    "glm47": Shape("glm45", "glm47", "</think>", _CALL, _CALL_END, *_GLM, _GLM_ENDS),
    "kimi_k2": Shape(
        "kimi_k2",
        "kimi_k2",
        "</think>",
        ("<|tool_calls_section_begin|>", "<|tool_call_begin|>"),
        ("<|tool_call_end|>", "<|tool_calls_section_end|>"),
        "functions.",
        ":0",
        ('{"content": "', '"'),
        "}",
        ('"', '"}'),
        middle=("<|tool_call_argument_begin|>",),
    ),
    "minimax_m2": Shape(
        "minimax_m2",
        "minimax_m2",
        "</think>",
        ("<minimax:tool_call>",),
        ("</minimax:tool_call>",),
        '\n<invoke name="',
        '">\n',
        ('<parameter name="content">', "</parameter>\n"),
        "</invoke>\n",
        ("</parameter>", "</invoke>", '<invoke name="write_file">'),
    ),
    "deepseek_v4": Shape(
        *("deepseek_v4", "deepseek_v4", "</think>"),
        *((f"<{_BAR}tool_calls>",), (f"</{_BAR}tool_calls>",), *_DSML, _DSML_ENDS),
    ),
    "deepseek_v32": Shape(
        *("deepseek_v3", "deepseek_v32", "</think>"),
        *((f"<{_BAR}function_calls>",), (f"</{_BAR}function_calls>",), *_DSML, _DSML_ENDS),
    ),
    "nemotron_v3": Shape("nemotron_v3", "qwen3_coder", "</think>", _CALL, _CALL_END, *_XML, _XML_ENDS),
    "seed_oss": Shape(
        *("seed_oss", "seed_oss", "</seed:think>"),
        *(("<seed:tool_call>",), ("</seed:tool_call>",), *_XML, _XML_ENDS, "<seed:think>"),
    ),
    "step3p5": Shape("step3p5", "step3p5", "</think>", _CALL, _CALL_END, *_XML, _XML_ENDS),
    "mimo": Shape("mimo", "mimo", "</think>", _CALL, _CALL_END, *_XML, _XML_ENDS),
    "granite4": Shape(None, "granite4", "", _CALL, _CALL_END, *_JSON, _JSON_ENDS, ""),
    "longcat": Shape(
        *(None, "longcat", "", ("<longcat_tool_call>",), ("</longcat_tool_call>",), *_JSON, _JSON_ENDS, ""),
    ),
}
PLACES = ("reasoning", "content", "name", "arguments", "value", "behind")
"""Of the repeated text: ``arguments`` is between two arguments, ``behind`` between a call's end and its block's."""


def texts(shape: Shape) -> dict[str, tuple[Token, ...]]:
    """Name -> what is repeated, in tokens."""
    spelled = (*filter(None, (shape.end, *shape.begin, *shape.middle, *shape.close)), *shape.ends)
    half = "".join(f"{marker[:-1]} " for marker in shape.markers)
    head = f"{shape.begin[0]}{shape.before_name}nothing{shape.after_name}"
    found = {
        "letters": "abcd ",
        "blanks": "    ",
        "lines": "\n",
        "angles": "<",
        "slashes": "</",
        "comparisons": "a < b > c ",
        "tags": "<b>x</b> ",
        "open tags": "<a>",
        "half markers": half,
        "double quotes": '"',
        "single quotes": "' ",
        "backticks": "`",
        "inline code": "`a` ",
        "fences": "\n```\nx",
        "open fences": "\n```python\nx",
        "backslashes": "\\",
        "escapes": '\\"',
        "brackets": "[",
        "braces": "{",
        "objects": '{"a":',
        "members": '"a": 1, ',
        "commas": ",",
        "digits": "1",
        "entities": "&lt;",
        "heads": head,
        "quoted heads": f"`{head}` ",
    }
    for marker in dict.fromkeys(spelled):
        found[f"spelled {marker}"] = marker
    for marker in dict.fromkeys(filter(None, (shape.end, shape.begin[0], shape.close[-1]))):
        found[f"quoted {marker}"] = f"`{marker}` "
        found[f"mentioned {marker}"] = f"print {marker} then "
    made = {name: tuple(cut(unit)) for name, unit in found.items()}
    for marker in shape.markers:
        made[f"special {marker}"] = (Token(marker, True),)
        made[f"special {marker} and words"] = (*cut("so `x` "), Token(marker, True), *cut("it is "))
    return made


def cut(text: str) -> Iterator[Token]:
    """``text`` in ordinary tokens."""
    return (Token(text[at : at + SIZE], False) for at in range(0, len(text), SIZE))


def answer(shape: Shape, place: str, unit: tuple[Token, ...], size: int) -> list[Token] | None:
    """An answer with ``unit`` repeated to about ``size`` characters at ``place``; None where the format has no such."""
    width = sum(len(token.text) for token in unit)
    count = -(-size // width)
    whole = any(token.special for token in unit)
    filler = [*unit] * count if whole else [*cut("".join(token.text for token in unit) * count)]
    said = [*cut("Let me think. ")] if shape.end else []
    done = [Token(shape.end, True)] if shape.end else []
    if place == "reasoning":
        return [*said, *filler, *done, *cut("\n\nDone.")] if shape.end else None
    if place == "content":
        return [*said, *done, *cut("\n\nWell: "), *filler, *cut(" Done.")]
    if not shape.tools:
        return None
    open_, close = ([Token(marker, True) for marker in markers] for markers in (shape.begin, shape.close))
    middle = [Token(marker, True) for marker in shape.middle]
    first, last = shape.value
    head = [*said, *done, *cut("\n\n"), *open_, *cut(shape.before_name)]
    named = [*head, *cut(f"write_file{shape.after_name}"), *middle]
    tail = [*cut(shape.after_call), *close]
    if place == "name":
        return [*head, *cut("write"), *filler, *cut(shape.after_name), *middle, *cut(f"{first}x{last}"), *tail]
    if place == "arguments":
        return [*named, *cut(f"{first}x{last}"), *filler, *tail]
    if place == "value":
        return [*named, *cut(first), *filler, *cut(last), *tail]
    return [*named, *cut(f"{first}x{last}{shape.after_call}"), *close[:-1], *filler, *close[-1:]]
