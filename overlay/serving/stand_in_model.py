"""For probes: the least that an engine's own classes ask of a tokenizer, and of a model's config."""

from __future__ import annotations

import tempfile
from types import SimpleNamespace
from typing import Any

from engine_overlay.engines import Engine


class NoVocabulary:
    """A tokenizer without special tokens, whose ids are characters: a parser goes by the text alone."""

    all_special_tokens: tuple[str, ...] = ()
    all_special_ids: tuple[int, ...] = ()

    def get_vocab(self) -> dict[str, int]:
        return {}

    def decode(self, ids: Any, **_: Any) -> str:
        return "".join(map(chr, ids))


def defaulted(engine: Engine, **config: Any) -> tuple[Any, Any]:
    """(``EngineArgs`` that nobody gave a value, the config of a generation model) behind the engine's defaults."""
    model_config = SimpleNamespace(
        is_chunked_prefill_supported=True,
        is_prefix_caching_supported=True,
        is_hybrid=False,
        runner_type="generate",
        **config,
    )
    with tempfile.TemporaryDirectory(prefix="engine-overlay-") as folder:
        args = engine.module("engine.arg_utils").EngineArgs(model=folder)
    args._set_default_chunked_prefill_and_prefix_caching_args(model_config)
    return args, model_config
