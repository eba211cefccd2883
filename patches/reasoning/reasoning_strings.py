"""Let every reasoning parser say which text starts and ends its reasoning.

Symptom: a request with ``thinking_token_budget`` is answered 400 ``thinking_token_budget is set but
reasoning_config is not configured`` although ``--reasoning-parser`` was given, and the log says
"Auto-initialization of reasoning token IDs failed" once at start-up.

Cause: ``reasoning_start_str`` and ``reasoning_end_str`` of the base class are ``None`` (or not there at
all, vllm 0.19), and a parser that does not define them itself leaves the derived reasoning config without
token ids.

Change: the two properties of the base class answer from what the parser knows: the strings it keeps, or the
token ids it looked up in the vocabulary. Where it keeps neither, a table names the text by the format:
granite's two phrases, gpt-oss's analysis channel up to ``<|end|>``, muse's messages to itself up to
``<|eom|>``, and step3. A parser that defines the properties keeps its own, and a user's
``--reasoning-config`` is asked first as before. ``None`` stays: for ``hunyuan_a13b``, whose end needs a
newline in front that tokenizers merge into the word before it, so that no one string is both what the model
writes and what may be forced; for the identity parser, which has no reasoning; and for any marker that the
tokenizer does not spell alone in the same tokens as between two lines, or not as the very token the parser
looks for, because the budget compares tokens.

Risk: requests with a budget that were refused are served and end their reasoning at the budget. gpt-oss
counts each analysis message on its own; a muse message without a recipient is not counted; a quantised
granite that writes "Here's my response:" is not seen to end. Requests without a budget do not change.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from engine_overlay.engines import Engine
from engine_overlay.record import ABSENT, Finding, Outcome, Patch, Range, Target

_START = "reasoning.abs_reasoning_parsers:ReasoningParser.reasoning_start_str"
_END = "reasoning.abs_reasoning_parsers:ReasoningParser.reasoning_end_str"

PATCH = Patch(
    id="reasoning_strings",
    engines={"vllm": Range("0.19.0", "0.33.0"), "aphrodite": Range("0.20.0", "0.24.1")},
    targets=(
        Target(path=_START, bodies=("b92f884289b0", ABSENT)),
        Target(path=_END, bodies=("4182391f06c7", ABSENT)),
    ),
    reads=(
        # Keeps the tokenizer in `model_tokenizer`.
        Target(
            path="reasoning.abs_reasoning_parsers:ReasoningParser.__init__",
            bodies=("638f15a99ff6", "8a66c0d8d701"),
        ),
    ),
    upstream=(),
    relationship="different approach",
    introduced_in={"vllm": "0.19.0", "aphrodite": "0.20.0"},
    fixed_in={"vllm": None, "aphrodite": None},
    superseded_by=None,
    group=None,
    requires=(),
    conflicts=(),
    after=(),
    default=True,
    default_reason="only what was refused changes: a parser's own strings and a user's config come first",
    scope=("config",),
    native_alternative="--reasoning-config with reasoning_start_str and reasoning_end_str",
    remove_when="every parser of the engine that has markers defines both properties itself",
)

_KEPT = (
    ("start_token", "end_token"),
    ("_start_token", "_end_token"),
    ("think_start_token", "think_end_token"),
    ("think_start", "think_end"),
)
"""Attributes in which parsers keep the two markers; a token's id, if kept, has the same name and ``_id``."""

_BY_FORMAT = {
    "granite_reasoning_parser.GraniteReasoningParser": (
        "Here is my thought process:",
        "Here is my response:",
    ),
    "gptoss_reasoning_parser.GptOssReasoningParser": ("<|channel|>analysis<|message|>", "<|end|>"),
    # The prompt ends in "<|start|>assistant", so the header the model writes begins with a space.
    "muse_reasoning_parser.MuseReasoningParser": (" to=self<|message|>", "<|eom|>"),
    "muse_glimmer_reasoning_parser.MuseGlimmerReasoningParser": (" to=self<|message|>", "<|eom|>"),
    # vllm 0.19 keeps only the end; later releases define both as here.
    "step3_reasoning_parser.Step3ReasoningParser": ("<think>", "</think>"),
}


def markers(parser: Any) -> tuple[str, str] | None:
    """(start, end) of the reasoning that ``parser`` looks for, or None when not known or not usable."""
    tokenizer = getattr(parser, "model_tokenizer", None)
    if tokenizer is None:
        return None
    for kept in _KEPT:
        start, end = (_text(parser, name) for name in kept)
        if start and end:
            ids = tuple(getattr(parser, f"{name}_id", None) for name in kept)
            return _usable(tokenizer, (start, end), ids)
    for cls in type(parser).__mro__:
        known = _BY_FORMAT.get(f"{cls.__module__.rpartition('.')[2]}.{cls.__name__}")
        if known:
            return _usable(tokenizer, known, (None, None))
    ids = tuple(getattr(parser, f"{name}_id", None) for name in _KEPT[0])
    if all(isinstance(i, int) for i in ids):
        return _usable(tokenizer, tuple(_spelled(tokenizer, i) for i in ids), ids)
    return None


def _text(parser: Any, name: str) -> str | None:
    try:
        value = getattr(parser, name, None)
    except Exception:  # an abstract property
        return None
    return value if isinstance(value, str) else None


def _spelled(tokenizer: Any, token_id: int) -> str:
    try:
        return tokenizer.decode([token_id], skip_special_tokens=False)
    except Exception:
        return ""


def _usable(tokenizer: Any, pair: tuple[str, ...], ids: tuple[int | None, ...]) -> tuple[str, str] | None:
    start, end = pair
    fits = all(_alone(tokenizer, text, token_id) for text, token_id in zip(pair, ids, strict=True))
    return (start, end) if start and end and fits else None


def _alone(tokenizer: Any, text: str, token_id: int | None) -> bool:
    """Whether ``text`` has the same tokens alone and between two lines, and is the one token ``token_id``."""
    try:
        alone = list(tokenizer.encode(text, add_special_tokens=False))
        between = list(tokenizer.encode(f"\n{text}\n", add_special_tokens=False))
    except Exception:
        return False
    if not alone or (token_id is not None and alone != [token_id]):
        return False
    return any(between[i : i + len(alone)] == alone for i in range(len(between) - len(alone) + 1))


def probe(engine: Engine) -> Finding:
    """Ask a stock parser that looks for ``<think>`` and ``</think>`` by id for its two strings."""
    if engine.source("config.reasoning") is None:
        return Finding(Outcome.ABSENT, "this release has no thinking_token_budget")
    from tokenizers import Tokenizer, models
    from transformers import PreTrainedTokenizerFast

    words = {w: i for i, w in enumerate(("<unk>", "<think>", "</think>"))}
    vocabulary = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
    vocabulary.add_tokens(list(words))
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=vocabulary, unk_token="<unk>")
    manager = engine.module("reasoning").ReasoningParserManager
    parser = manager.get_reasoning_parser("minimax_m2_append_think")(tokenizer)
    names = ("reasoning_start_str", "reasoning_end_str")
    found = tuple(getattr(parser, name, None) for name in names)
    seen = f"{type(parser).__name__}: " + ", ".join(f"{n} {f!r}" for n, f in zip(names, found, strict=True))
    return Finding(Outcome.ABSENT if found == ("<think>", "</think>") else Outcome.PRESENT, seen)


def build(engine: Engine, originals: Mapping[str, Any]) -> Mapping[str, Any]:
    def answering(path: str, which: int) -> property:
        stock = originals[path]

        def get(self: Any) -> str | None:
            own = stock.fget(self) if stock is not None else None
            if own:
                return own
            known = markers(self)
            return known[which] if known else None

        get.__name__ = path.rpartition(".")[2]
        return property(get, doc=f"The text that {('starts', 'ends')[which]} reasoning, or None if unknown.")

    return {_START: answering(_START, 0), _END: answering(_END, 1)}
