"""Made-up answers of a model, with what is right for them: the text, how it is tokenised, cut and held back.

A dialogue is reasoning, then prose, then calls with prose between them. Every part may talk about the format's
markers, which must come through as text; the markers that are real are drawn as special tokens or spelled with
ordinary ones. What is said is drawn piece by piece, so that a counterexample shrinks to few pieces; how it is cut
comes from one seed.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from random import Random
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

Part = tuple[str, str]
"""(kind, text): ``real`` is a marker, as a special token or spelled; ``special`` a special token that is only talked
about; ``text`` everything else, whose markers are never special tokens."""


@dataclass(frozen=True)
class Format:
    """The markers of one pair of parsers. ``call`` writes a call as parts; ``words`` are more text to talk about."""

    reasoning_parser: str | None
    tool_parser: str | None
    end: str
    opener: str
    closer: str
    writer: str
    words: tuple[str, ...]
    start: str = "<think>"
    more: tuple[str, ...] = field(default=())

    @property
    def markers(self) -> tuple[str, ...]:
        return (self.start, self.end, self.opener, self.closer, *self.more)


def _raw(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _xml(form: Format, calls: list[tuple[str, dict[str, Any]]]) -> list[list[Part]]:
    def one(name: str, arguments: dict[str, Any]) -> list[Part]:
        body = "".join(f"<parameter={k}>\n{_raw(v)}\n</parameter>\n" for k, v in arguments.items())
        return [("real", form.opener), ("text", f"\n<function={name}>\n{body}</function>\n"), ("real", form.closer)]

    return [one(*call) for call in calls]


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
    def parameter(name: str, value: Any) -> str:
        kind = "true" if isinstance(value, str) else "false"
        return f'<｜DSML｜parameter name="{name}" string="{kind}">{_raw(value)}</｜DSML｜parameter>\n'

    def one(name: str, arguments: dict[str, Any]) -> str:
        body = "".join(parameter(*item) for item in arguments.items())
        return f'\n<｜DSML｜invoke name="{name}">\n{body}</｜DSML｜invoke>\n'

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


_WRITERS = {"xml": _xml, "glm": _glm, "minimax": _minimax, "dsml": _dsml, "kimi": _kimi, "hermes": _hermes}
_XML_WORDS = ("<function=", "</parameter>", "<function=get_weather>", "</function>")
_TOOL = ("<tool_call>", "</tool_call>")
_KIMI = tuple(f"<|tool_call{name}|>" for name in ("_begin", "_argument_begin", "_end"))
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
    "deepseek_v4": Format("deepseek_v4", "deepseek_v4", "</think>", *_DSML, "dsml", ("<｜DSML｜invoke",)),
    "kimi_k2": Format(
        "kimi_k2",
        "kimi_k2",
        "</think>",
        "<|tool_calls_section_begin|>",
        "<|tool_calls_section_end|>",
        "kimi",
        (),
        more=_KIMI,
    ),
    "hermes": Format("qwen3", "hermes", "</think>", *_TOOL, "hermes", ('{"name":', '"arguments"')),
    "qwen3_no_tools": Format("qwen3", None, "</think>", *_TOOL, "xml", _XML_WORDS),
}

_SENTENCES = (
    "Paris.",
    "So 1 < 2 and x > y.",
    "We look it up first, then answer.",
    "Let me check whether it rains today; it may.",
    "Caf\u00e9 \u5929\u6c17 \U0001f600 is fine.",
    "A list:\n- one\n- two",
    "It's \"quoted\" and 'so' on.",
    "f(x) = {a: [1, 2]}",
    "if a<b then b>a",
)


def _mentions(words: tuple[str, ...]) -> st.SearchStrategy[str]:
    """Text that talks about a marker: inline code, a JSON string, a code fence, the middle of a sentence."""
    word = st.sampled_from(words)
    return st.one_of(
        word.map(lambda m: f"The tag `{m}` is markup."),
        word.map(lambda m: f'In JSON: {{"tag": "{m}"}} here.'),
        word.map(lambda m: f"See:\n```\n{m}\n```\nThat is all."),
        word.map(lambda m: f"When I print {m} then it folds."),
        word.map(lambda m: f'They call it "{m}" there.'),
    )


@st.composite
def _texts(draw: Any, form: Format, *, special: bool) -> list[Part]:
    """One to three sentences; with ``special``, openers that are only talked about may be special tokens."""
    parts: list[Part] = []
    for n in range(draw(st.integers(1, 3))):
        gap = "\n" if n else ""
        kind = draw(st.sampled_from(("plain", "mention", "special") if special else ("plain", "mention")))
        if kind == "plain":
            parts.append(("text", gap + draw(st.sampled_from(_SENTENCES))))
        elif kind == "mention":
            parts.append(("text", gap + draw(_mentions((*form.markers, *form.words)))))
        else:
            parts += [("text", f"{gap}The tag `"), ("special", form.opener), ("text", "` opens a call.")]
    return parts


@st.composite
def _calls(draw: Any, form: Format) -> tuple[str, dict[str, Any]]:
    if draw(st.booleans()):
        city = draw(st.sampled_from(["Oslo", "S\u00e3o Paulo", "\u5317\u4eac", "a < b", "x > y & z"]))
        arguments: dict[str, Any] = {"city": city, "days": draw(st.integers(0, 99)), "raw": draw(st.booleans())}
        return "get_weather", {k: arguments[k] for k in draw(st.permutations(list(arguments)))}
    words = [m for m in (*form.markers, *form.words) if m not in (form.closer, *form.more)]
    if form.writer in ("glm", "minimax", "dsml"):
        # Formats in which the value's own closer would end it; qwen3's tells by what follows.
        words = [m for m in words if not m.startswith("</") or m == form.end]
    lines = st.one_of(st.sampled_from(_SENTENCES), st.sampled_from(words).map(lambda m: f"Use `{m}` there."))
    return "write_file", {"content": "\n".join(draw(st.lists(lines, min_size=1, max_size=3)))}


def split(rng: Random, text: str, markers: tuple[str, ...], longest: int) -> list[str | dict[str, str]]:
    """``text`` in tokens that are none of the markers; now and then a character is two tokens of bytes."""
    pieces: list[str | dict[str, str]] = []
    at = 0
    while at < len(text):
        piece = text[at : at + rng.randint(1, longest)]
        at += len(piece)
        if piece in markers:
            pieces += [piece[:-1], piece[-1]]
        elif len(piece) == 1 and len(raw := piece.encode()) > 2 and rng.random() < 0.5:
            cut = rng.randrange(1, len(raw))
            pieces += [{"hex": raw[:cut].hex()}, {"hex": raw[cut:].hex()}]
        else:
            pieces.append(piece)
    return pieces


@st.composite
def dialogues(draw: Any, name: str) -> tuple[dict[str, Any], list[int]]:
    """(a case as in tests/cases, the number of tokens in each delta)."""
    form = FORMATS[name]
    reasoning = draw(_texts(form, special=form.tool_parser is not None))
    prose = draw(st.one_of(st.just([]), _texts(form, special=form.tool_parser is not None)))
    made = draw(st.lists(_calls(form), max_size=3)) if form.tool_parser else []
    parts: list[Part] = [*reasoning, ("real", form.end), ("text", "\n\n"), *prose]
    for call in _WRITERS[form.writer](form, made) if made else ():
        parts += [("text", "\n"), *call]
    rng = Random(draw(st.integers(0, 2**32 - 1)))
    spelled = draw(st.sampled_from((0.0, 0.5, 1.0)))
    longest = draw(st.sampled_from((1, 3, 7)))
    pieces: list[str | dict[str, str]] = []
    for kind, text in parts:
        if kind == "special" or kind == "real" and rng.random() >= spelled:
            pieces.append(text)
        else:
            most = min(longest, len(text) - 1) if kind == "real" else longest
            pieces += split(rng, text, form.markers, most)
    cuts, left = [], len(pieces)
    sizes = draw(st.sampled_from(((1,), (1, 1, 2, 3, 7, 20), (1000,))))
    while left > 0:
        cuts.append(min(left, rng.choice(sizes)))
        left -= cuts[-1]
    case = {
        "id": f"dialogue-{name}",
        "kind": "property",
        "reasoning_parser": form.reasoning_parser,
        "tool_parser": form.tool_parser,
        "tools": TOOLS if form.tool_parser else None,
        "prompt_pieces": ["<|im_start|>", "assistant", "\n", form.start, "\n"],
        "atomic": list(form.markers),
        "text": "".join(text for _, text in parts),
        "token_pieces": pieces,
        "deltas": cuts,
        "holdback": draw(st.sampled_from([0, 0, 1, 3, 6, 12])),
        "expect": {
            "reasoning": "".join(text for _, text in reasoning),
            "content": "".join(text for _, text in prose),
            "tool_calls": [{"name": n, "arguments": a} for n, a in made],
            "finish_reason": "tool_calls" if made else "stop",
        },
        "why": "made by tests/properties/dialogues.py",
    }
    return case, cuts
