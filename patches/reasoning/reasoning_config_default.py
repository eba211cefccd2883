"""Derive the reasoning config from the reasoning parser when the user gave none.

Symptom: on vllm 0.19 a request with ``thinking_token_budget`` is answered 400 ``thinking_token_budget is
set but reasoning_config is not configured. Please set --reasoning-config`` although ``--reasoning-parser``
was given, for every parser.

Cause: the release knows ``ReasoningConfig``, but nothing asks the parser for its markers; later releases
do.

Change: while the engine arguments get their other defaults, a missing ``reasoning_config`` is made from the
two strings of the parser. A ``--reasoning-config`` of the user is left alone. When the parser cannot be
built, has no strings, or the tokenizer cannot encode them, none is made, and requests are refused as
before. With speculative decoding none is made either: there this release drops the processor that keeps the
budget.

Risk: with a reasoning config the release keeps the output tokens of each request at hand for sampling, as
later releases always do.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from typing import Any

from engine_overlay.engines import Engine
from engine_overlay.record import Finding, Outcome, Patch, Range, Target

_TARGET = "engine.arg_utils:EngineArgs._set_default_max_num_seqs_and_batched_tokens_args"

PATCH = Patch(
    id="reasoning_config_default",
    engines={"vllm": Range("0.19.0", "0.19.1")},
    # The last of the defaults that are set from the model config before the engine config is made.
    targets=(Target(path=_TARGET, bodies=("28ee065b59ca",)),),
    reads=(
        Target(path="engine.arg_utils:EngineArgs.create_engine_config", bodies=("d2b755dd8ce5",)),
        Target(path="config.reasoning:ReasoningConfig.initialize_token_ids", bodies=("1a6be04e3eb4",)),
    ),
    upstream=(),
    relationship="backport",
    introduced_in={"vllm": "0.19.0"},
    fixed_in={"vllm": "0.20.0"},
    superseded_by=None,
    group=None,
    requires=("reasoning_strings",),
    conflicts=(),
    after=(),
    default=True,
    default_reason="only what was refused changes: a user's reasoning config is left alone",
    scope=("config",),
    native_alternative="--reasoning-config with reasoning_start_str and reasoning_end_str",
    remove_when="vllm 0.19 is no longer supported",
)


def derived(engine: Engine, parser_name: str, model_config: Any) -> Any:
    """A ``ReasoningConfig`` with the parser's two strings, or None when none can be encoded."""
    try:
        tokenizer = engine.module("tokenizers").cached_tokenizer_from_config(model_config=model_config)
        manager = engine.module("reasoning").ReasoningParserManager
        parser = manager.get_reasoning_parser(parser_name)(tokenizer)
        start, end = (getattr(parser, name, None) for name in ("reasoning_start_str", "reasoning_end_str"))
        if not start or not end:
            return None
        if not all(tokenizer.encode(text, add_special_tokens=False) for text in (start, end)):
            return None
        return engine.module("config").ReasoningConfig(reasoning_start_str=start, reasoning_end_str=end)
    except Exception:  # the engine itself says later, and better, what is wrong with it
        return None


def probe(engine: Engine) -> Finding:
    """Set the defaults of engine arguments that name a reasoning parser and no reasoning config."""
    if engine.source("config.reasoning") is None:
        return Finding(Outcome.ABSENT, "this release has no thinking_token_budget")
    arguments = engine.module("engine.arg_utils").EngineArgs
    if hasattr(arguments, "_set_default_reasoning_config_args"):
        return Finding(Outcome.ABSENT, "the release has _set_default_reasoning_config_args itself")
    from tokenizers import Tokenizer, models
    from transformers import PreTrainedTokenizerFast

    words = {w: i for i, w in enumerate(("<unk>", "<think>", "</think>"))}
    vocabulary = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
    vocabulary.add_tokens(list(words))
    with tempfile.TemporaryDirectory(prefix="engine-overlay-") as folder:
        PreTrainedTokenizerFast(tokenizer_object=vocabulary, unk_token="<unk>").save_pretrained(folder)
        model_class = engine.module("config").ModelConfig
        # Its constructor would want a model's weights and architecture; only the tokenizer is asked for here.
        model_config = model_class.__new__(model_class)
        for name, value in {
            "tokenizer": folder,
            "tokenizer_mode": "auto",
            "tokenizer_revision": None,
            "trust_remote_code": False,
            "skip_tokenizer_init": False,
            "runner_type": "generate",
        }.items():
            object.__setattr__(model_config, name, value)
        sizes = {"max_num_batched_tokens": 64, "max_num_seqs": 1}
        args = arguments(model=folder, reasoning_parser="deepseek_r1", **sizes)
        args._set_default_max_num_seqs_and_batched_tokens_args(None, model_config)
    config = args.reasoning_config
    if config is None:
        return Finding(Outcome.PRESENT, "reasoning_parser='deepseek_r1' leaves reasoning_config None")
    return Finding(Outcome.ABSENT, f"reasoning_parser='deepseek_r1' gives {config!r}")


def build(engine: Engine, originals: Mapping[str, Any]) -> Mapping[str, Any]:
    stock = originals[_TARGET]

    def with_reasoning_config(self: Any, usage_context: Any, model_config: Any) -> None:
        stock(self, usage_context, model_config)
        if self.reasoning_config is None and self.reasoning_parser and not self.speculative_config:
            self.reasoning_config = derived(engine, self.reasoning_parser, model_config)

    return {_TARGET: with_reasoning_config}
