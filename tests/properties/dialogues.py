"""Made-up answers of a model, with what is right for them: the text, how it is tokenised, cut and held back.

A dialogue is reasoning, then prose, then calls. Every part may talk about the format's markers, which must come
through as text; the markers that are real are drawn as special tokens or spelled with ordinary ones.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

TOOLS = [
    {
        "name": "get_weather",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}, "days": {"type": "integer"}, "raw": {"type": "boolean"}},
        },
    },
    {"name": "write_file", "parameters": {"type": "object", "properties": {"content": {"type": "string"}}}},
]


@dataclass(frozen=True)
class Format:
    """The markers of one pair of parsers, and how it writes a call (pieces; markers stand alone)."""

    reasoning_parser: str
    tool_parser: str
    markers: tuple[str, ...]
    parallel: bool = True

    def call(self, name: str, arguments: dict[str, Any]) -> list[str]:
        return _WRITERS[self.tool_parser](name, arguments)


def _xml(name: str, arguments: dict[str, Any]) -> list[str]:
    body = "".join(f"<parameter={key}>\n{_raw(value)}\n</parameter>\n" for key, value in arguments.items())
    return ["<tool_call>", f"\n<function={name}>\n{body}</function>\n", "</tool_call>"]


def _glm(name: str, arguments: dict[str, Any]) -> list[str]:
    body = "".join(f"<arg_key>{k}</arg_key>\n<arg_value>{_raw(v)}</arg_value>\n" for k, v in arguments.items())
    return ["<tool_call>", f"{name}\n{body}", "</tool_call>"]


def _minimax(name: str, arguments: dict[str, Any]) -> list[str]:
    body = "".join(f'<parameter name="{k}">{_raw(v)}</parameter>\n' for k, v in arguments.items())
    return ["<minimax:tool_call>", f'\n<invoke name="{name}">\n{body}</invoke>\n', "</minimax:tool_call>"]


def _raw(value: Any) -> str:
    return value if isinstance(value, str) else str(value).lower()


_WRITERS = {"qwen3_coder": _xml, "glm47": _glm, "minimax_m2": _minimax}
_THINK = ("<think>", "</think>")
FORMATS = {
    "qwen3": Format("qwen3", "qwen3_coder", (*_THINK, "<tool_call>", "</tool_call>")),
    "glm47": Format("glm45", "glm47", (*_THINK, "<tool_call>", "</tool_call>")),
    "minimax_m2": Format("minimax_m2", "minimax_m2", (*_THINK, "<minimax:tool_call>", "</minimax:tool_call>")),
}

WORDS = st.sampled_from(
    "The answer is that a city may rain today , so we look ; 1 < 2 and x > y or caf\u00e9 \u5929\u6c17 \U0001f600 ok".split()
)
SENTENCE = st.lists(WORDS, min_size=1, max_size=6).map(lambda words: " ".join(words) + ".")


def mentions(markers: tuple[str, ...]) -> st.SearchStrategy[str]:
    """A sentence that talks about a marker, in inline code or in a JSON string."""
    marker = st.sampled_from((*markers, "<function=", "</parameter>"))
    return st.one_of(
        marker.map(lambda m: f"The tag `{m}` is markup."),
        marker.map(lambda m: f'In JSON: {{"tag": "{m}"}} here.'),
        marker.map(lambda m: f"See:\n```\n{m}\n```\nThat is all."),
    )


@st.composite
def texts(draw: Any, markers: tuple[str, ...], most: int = 3) -> str:
    parts = draw(st.lists(st.one_of(SENTENCE, mentions(markers)), min_size=1, max_size=most))
    return "\n".join(parts)


@st.composite
def calls(draw: Any, markers: tuple[str, ...]) -> tuple[str, dict[str, Any]]:
    if draw(st.booleans()):
        city = draw(st.sampled_from(["Oslo", "S\u00e3o Paulo", "\u5317\u4eac", "a < b", "x > y & z"]))
        arguments: dict[str, Any] = {"city": city, "days": draw(st.integers(0, 99)), "raw": draw(st.booleans())}
        return "get_weather", {k: arguments[k] for k in draw(st.permutations(list(arguments)))}
    opening = [m for m in markers if not m.startswith("</") or m == "</think>"]
    lines = st.one_of(SENTENCE, st.sampled_from(opening).map(lambda m: f"Use `{m}` there."))
    return "write_file", {"content": "\n".join(draw(st.lists(lines, min_size=1, max_size=3)))}


@st.composite
def split(draw: Any, text: str, every: int) -> list[str]:
    """``text`` in pieces of 1 to ``every`` characters."""
    pieces, at = [], 0
    while at < len(text):
        size = draw(st.integers(1, every))
        pieces.append(text[at : at + size])
        at += size
    return pieces


@st.composite
def dialogues(draw: Any, name: str) -> tuple[dict[str, Any], list[int]]:
    """(a case as in tests/cases, the number of tokens in each delta)."""
    form = FORMATS[name]
    reasoning = draw(texts(form.markers))
    prose = draw(st.one_of(st.just(""), texts(form.markers)))
    made = draw(st.lists(calls(form.markers), max_size=3))
    parts = [reasoning, "</think>", "\n\n" + prose]
    for call_name, arguments in made:
        parts += ["\n", *form.call(call_name, arguments)]
    pieces: list[str] = []
    for part in parts:
        if part in form.markers:
            pieces += [part] if draw(st.booleans()) else draw(split(part, len(part) - 1))
        else:
            # A mention must not be the special token by accident.
            for piece in draw(split(part, 7)):
                pieces += [piece[:-1], piece[-1]] if piece in form.markers else [piece]
    cuts, left = [], len(pieces)
    while left > 0:
        cuts.append(min(left, draw(st.sampled_from([1, 1, 2, 3, 7, 20]))))
        left -= cuts[-1]
    case = {
        "id": f"dialogue-{name}",
        "kind": "property",
        "reasoning_parser": form.reasoning_parser,
        "tool_parser": form.tool_parser,
        "tools": TOOLS,
        "prompt_pieces": ["<|im_start|>", "assistant", "\n", "<think>", "\n"],
        "atomic": list(form.markers),
        "text": "".join(parts),
        "token_pieces": pieces,
        "deltas": cuts,
        "holdback": draw(st.sampled_from([0, 0, 0, 1, 3, 6, 12])),
        "expect": {
            "reasoning": reasoning,
            "content": prose,
            "tool_calls": [{"name": n, "arguments": a} for n, a in made],
            "finish_reason": "tool_calls" if made else "stop",
        },
        "why": "made by tests/properties/dialogues.py",
    }
    return case, cuts
