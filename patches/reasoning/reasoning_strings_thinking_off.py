"""Let parsers that are built with thinking off say which text starts and ends reasoning.

Symptom: with ``--reasoning-parser deepseek_v3`` or ``poolside_v1`` (and ``deepseek_v4`` up to vllm 0.24) a
request with ``thinking_token_budget`` is answered 400 ``thinking_token_budget is set but reasoning_config
is not configured``, also when the request itself turns thinking on.

Cause: these parsers hand everything to another parser, which they choose by the request's ``thinking``
argument. The reasoning config asks one that was built without a request: that one has chosen the identity
parser, whose ``reasoning_start_str`` and ``reasoning_end_str`` are ``None``.

Change: when the identity parser was chosen, the two properties answer what the same parser answers with
thinking on. Parsing does not change. If the vocabulary has no such tokens the answer stays ``None``.

Risk: requests with a budget that were refused are served. With thinking off the prompt has no open
reasoning, so a budget then counts nothing. Requests without a budget do not change.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from engine_overlay.engines import Engine
from engine_overlay.record import ABSENT, Finding, Outcome, Patch, Range, Target

_CLASS = "reasoning.deepseek_v3_reasoning_parser:DeepSeekV3ReasoningParser"
_START = f"{_CLASS}.reasoning_start_str"
_END = f"{_CLASS}.reasoning_end_str"

PATCH = Patch(
    id="reasoning_strings_thinking_off",
    engines={"vllm": Range("0.19.0", "0.33.0"), "aphrodite": Range("0.20.0", "0.24.1")},
    targets=(
        Target(path=_START, bodies=("bf682489fef2", ABSENT)),
        Target(path=_END, bodies=("5aa71d95354c", ABSENT)),
    ),
    # The choice between the two parsers, and the switch it looks at.
    reads=(Target(path=f"{_CLASS}.__init__", bodies=("ecdba284a973",)),),
    upstream=(),
    relationship="different approach",
    introduced_in={"vllm": "0.19.0", "aphrodite": "0.20.0"},
    fixed_in={"vllm": None, "aphrodite": None},
    superseded_by=None,
    group=None,
    requires=("reasoning_strings",),
    conflicts=(),
    after=(),
    default=True,
    default_reason="only what was refused changes: a user's reasoning config comes first",
    scope=("config",),
    native_alternative="--reasoning-config with reasoning_start_str and reasoning_end_str",
    remove_when="DeepSeekV3ReasoningParser has both strings whatever the request's thinking argument is",
)


def probe(engine: Engine) -> Finding:
    """Build ``deepseek_v3`` as the reasoning config does, without a request, and ask for its two strings."""
    if engine.source("config.reasoning") is None:
        return Finding(Outcome.ABSENT, "this release has no thinking_token_budget")
    from tokenizers import Tokenizer, models
    from transformers import PreTrainedTokenizerFast

    words = {w: i for i, w in enumerate(("<unk>", "<think>", "</think>"))}
    vocabulary = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
    vocabulary.add_tokens(list(words))
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=vocabulary, unk_token="<unk>")
    manager = engine.module("reasoning").ReasoningParserManager
    parser = manager.get_reasoning_parser("deepseek_v3")(tokenizer)
    names = ("reasoning_start_str", "reasoning_end_str")
    found = tuple(getattr(parser, name, None) for name in names)
    seen = f"{type(parser).__name__}: " + ", ".join(f"{n} {f!r}" for n, f in zip(names, found, strict=True))
    return Finding(Outcome.ABSENT if found == ("<think>", "</think>") else Outcome.PRESENT, seen)


def build(engine: Engine, originals: Mapping[str, Any]) -> Mapping[str, Any]:
    def answering(path: str) -> property:
        stock = originals[path]
        name = path.rpartition(".")[2]

        def get(self: Any) -> str | None:
            inner = self._parser
            own = stock.fget(self) if stock is not None else getattr(inner, name, None)
            if own or type(inner).__name__ != "IdentityReasoningParser":
                return own
            try:
                thinking = type(self)(self.model_tokenizer, chat_template_kwargs={"thinking": True})
            except Exception:  # the vocabulary has no such tokens
                return None
            return getattr(thinking._parser, name, None)

        get.__name__ = name
        return property(get, doc="As with thinking on, also when the parser was built with thinking off.")

    return {_START: answering(_START), _END: answering(_END)}
