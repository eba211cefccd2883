"""Made-up answers of a model, with what is right for them: the text, how it is tokenised, cut and held back.

A dialogue is reasoning, then prose, then calls (see :data:`SHAPES`). Every part may talk about the format's
markers, which must come through as text; the markers that are real are drawn as special tokens or spelled with
ordinary ones. What is said is drawn piece by piece, so that a counterexample shrinks to few pieces; how it is cut
comes from one seed.
"""

from __future__ import annotations

from random import Random
from typing import Any

from hypothesis import strategies as st

from tests.properties.formats import FORMATS, WRITERS, Format, Part

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
    lines = st.sampled_from(_SENTENCES)
    # Where every tag begins alike, a value that has one is a nested element for the engine.
    if form.writer != "elements":
        lines = st.one_of(lines, st.sampled_from(words).map(lambda m: f"Use `{m}` there."))
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


SHAPES = ("calls", "prose", "none", "no tools", "undeclared", "fenced", "fragment", "bare", "cut")
"""What a dialogue is about: calls one after the other; prose between and behind them; ``tool_choice`` "none"; a
request without tools; a call of a tool that nobody declared, or one in a code fence, in the prose ahead; an opener
that was begun ahead of the real one; DeepSeek's calls without the block around them; an answer that ``max_tokens``
cuts at any token."""


def prompt_of(form: Format) -> list[str]:
    return ["<|im_start|>", "assistant", "\n", *((form.start, "\n") if form.start else ())]


def _spelled_call(form: Format, name: str, arguments: dict[str, Any]) -> str:
    return "".join(text for parts in WRITERS[form.writer](form, [(name, arguments)]) for _, text in parts)


@st.composite
def _turn(draw: Any, form: Format, shape: str) -> tuple[list[Part], list[Part], str, list[Any]]:
    """(the parts of the reasoning, the parts behind it, the content that they mean, the calls)."""
    special = form.tool_parser is not None
    reasoning = draw(_texts(form, special=special)) if form.end else []
    said = _texts(form, special=special and shape != "no tools")
    prose = draw(st.one_of(st.just([]), said) if form.end else said)
    made = draw(st.lists(_calls(form), min_size=int(shape in ("fragment", "bare")), max_size=3)) if special else []
    if shape == "undeclared":
        prose += [("text", "\n" + _spelled_call(form, "remove_all", {"city": "Oslo"}))]
    if shape == "fenced":
        example = _spelled_call(form, *draw(_calls(form)))
        prose += [("text", f"\nFor example:\n```\n{example}\n```\nThat is the format.")]
    parts, content = [*prose], "".join(text for _, text in prose)
    for n, call in enumerate(WRITERS[form.writer](form, made) if made else ()):
        parts.append(("text", "\n"))
        if shape == "fragment" and n == 0:
            # Begun with ordinary tokens, then said as the special token.
            parts += [("begun", form.opener[: draw(st.integers(3, len(form.opener) - 1))]), ("special", form.opener)]
            call = call[1:]
        if shape == "bare":
            call = [*call[1:-1], *draw(st.sampled_from(([], [("text", form.closer)])))]
        parts += call
        if shape == "no tools":
            content += "\n" + "".join(text for _, text in call)
        elif shape == "prose":
            more = draw(st.one_of(st.just([]), _texts(form, special=False)))
            parts += [("text", "\n"), *more] if more else []
            content += "".join(("\n", *(text for _, text in more)))
    return reasoning, parts, content, [] if shape in ("none", "no tools") else made


@st.composite
def dialogues(draw: Any, name: str) -> tuple[dict[str, Any], list[int]]:
    """(a case as in tests/cases, the number of tokens in each delta).

    ``cut`` in the case: what is expected is the whole answer, of which ``max_tokens`` let a beginning through.
    ``stream only``: some engines lose text behind calls (see docs/known-limitations.md).
    ``loose``: white space inside the content does not count, as it may go with the calls beside it.
    """
    form = FORMATS[name]
    shapes = [shape for shape in SHAPES if form.tool_parser or shape in ("calls", "cut")]
    shapes = [shape for shape in shapes if form.tail or shape != "prose"]
    shapes = [shape for shape in shapes if form.writer == "dsml" or shape != "bare"]
    shapes = [shape for shape in shapes if form.cut or shape != "cut"]
    # An opener that begins twice alike leaves open where its fragment began.
    shapes = [shape for shape in shapes if form.opener.count(form.opener[:1]) == 1 or shape != "fragment"]
    shape = draw(st.sampled_from(shapes))
    reasoning, behind, content, made = draw(_turn(form, shape))
    parts = [*reasoning, *([("real", form.end), ("text", "\n\n")] if form.end else ()), *behind]
    rng = Random(draw(st.integers(0, 2**32 - 1)))
    # Without tools, the special token of a closer is dropped by the engines as one that closes nothing.
    spelled = draw(st.sampled_from((0.0, 0.5, 1.0) if shape != "no tools" else (1.0,)))
    pieces = _pieces(rng, form, parts, spelled, draw(st.sampled_from((1, 3, 7))))
    if shape == "cut":
        pieces = pieces[: draw(st.integers(1, len(pieces)))]
    cuts, left = [], len(pieces)
    sizes = draw(st.sampled_from(((1,), (1, 1, 2, 3, 7, 20), (1000,))))
    while left > 0:
        cuts.append(min(left, rng.choice(sizes)))
        left -= cuts[-1]
    case = {
        "id": f"dialogue-{name}",
        "kind": f"property {shape}",
        "reasoning_parser": form.reasoning_parser,
        "tool_parser": form.tool_parser,
        "tools": TOOLS if form.tool_parser and shape != "no tools" else None,
        "prompt_pieces": prompt_of(form),
        "atomic": list(form.markers),
        "text": "".join(text for _, text in parts),
        "token_pieces": pieces,
        "deltas": cuts,
        "holdback": draw(st.sampled_from([0, 0, 1, 3, 6, 12])),
        "expect": {
            "reasoning": "".join(text for _, text in reasoning),
            "content": content,
            "tool_calls": [{"name": n, "arguments": a} for n, a in made],
            "finish_reason": "tool_calls" if made else "stop",
        },
        "why": "made by tests/properties/dialogues.py",
    }
    if shape == "none":
        case["tool_choice"] = "none"
    if shape in ("prose", "no tools", "none"):
        case["loose"] = True
    if shape == "prose":
        case["stream only"] = True
    if shape == "cut":
        case |= {"cut": True, "engine_finish": "length"}
    return case, cuts


def _pieces(rng: Random, form: Format, parts: list[Part], spelled: float, longest: int) -> list[str | dict[str, str]]:
    """The tokens of ``parts``: a share ``spelled`` of the real markers in ordinary ones of ``longest`` characters."""
    pieces: list[str | dict[str, str]] = []
    for kind, text in parts:
        if kind == "special" or kind == "real" and rng.random() >= spelled:
            pieces.append(text)
        else:
            most = min(longest, len(text) - 1) if kind == "real" else longest
            pieces += split(rng, text, form.markers, most)
    return pieces
