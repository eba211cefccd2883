"""Let the last projection accumulate in float32 by the engine's own switch, unless the user chose otherwise.

Symptom: a trainer whose ``lm_head`` runs in float32 sees a clip rate of 0.018 against a bfloat16 engine that is
otherwise the same model; with a float32 head on both sides it is 0.004.

Cause: the logits of a bfloat16 model are rounded to bfloat16; ``head_dtype`` exists, but is the model's own dtype
for generation models by default.

Change: a generation model whose config has no ``head_dtype`` gets "float32", as ``--hf-overrides
'{"head_dtype": "float32"}'`` would give it. A ``head_dtype`` in ``hf_overrides`` or in the model's config is left
alone ("model" keeps the model's dtype). Pooling models stay as they are.

Risk: logits take twice the memory, 4 bytes x batch x vocabulary, also when gathered over tensor parallel ranks. On
CUDA and ROCm the weight is read as it is; elsewhere each step makes a float32 copy of the head for its own length:
4 bytes x vocabulary x hidden size (vocabulary 152k, hidden size 4096: 2.5 GB). A quantised head is refused by the
engine at start-up: "only supported for an unquantized lm_head"; then ENGINE_OVERLAY_DISABLE=fp32_head_native.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from engine_overlay.engines import Engine
from engine_overlay.record import Finding, Outcome, Patch, Range, Target
from engine_overlay.serving.stand_in_model import defaulted

# It is handed the model's config when that is complete, and before anything is made of it.
_TARGET = "engine.arg_utils:EngineArgs._set_default_chunked_prefill_and_prefix_caching_args"

PATCH = Patch(
    id="fp32_head_native",
    engines={"vllm": Range("0.26.0", "0.33.0"), "aphrodite": Range("0.22.0", "0.24.1")},
    targets=(Target(path=_TARGET, bodies=("b402c702ccdd", "ec9ecce7a162", "4c4168aab855")),),
    reads=(
        Target(path="config.model:_get_head_dtype", bodies=("340ffc980f41", "85d81d347cd3")),
        Target(path="config.model:ModelConfig.head_dtype", bodies=("cdc9d952780c",)),
        Target(
            path="model_executor.layers.logits_processor:LogitsProcessor._apply_head",
            bodies=("8f1fd103c1e2", "0d53b8e97b12"),
        ),
    ),
    upstream=(),
    relationship="different approach",
    introduced_in={"vllm": "0.26.0", "aphrodite": "0.22.0"},
    fixed_in={"vllm": None, "aphrodite": None},
    superseded_by=None,
    group=None,
    requires=(),
    conflicts=(),
    after=("prefix_caching_off", "async_scheduling_off"),
    default=False,
    default_reason="it costs memory, and only a comparison with a trainer needs it",
    scope=("config",),
    native_alternative="""--hf-overrides '{"head_dtype": "float32"}'""",
    remove_when="the engine's head is float32 by default",
)


def probe(engine: Engine) -> Finding:
    """Ask for the head's dtype of a bfloat16 generation model that got its defaults."""
    if not hasattr(engine.module("model_executor.layers.logits_processor").LogitsProcessor, "_apply_head"):
        return Finding(Outcome.ABSENT, "this release has no head_dtype for generation models")
    import torch
    from transformers import PretrainedConfig

    _, model_config = defaulted(engine, hf_config=PretrainedConfig())
    asked = engine.module("config.model")._get_head_dtype
    found = asked(config=model_config.hf_config, dtype=torch.bfloat16, runner_type="generate")
    outcome = Outcome.ABSENT if found == torch.float32 else Outcome.PRESENT
    return Finding(outcome, f"the head of a bfloat16 generation model is {found}")


def build(engine: Engine, originals: Mapping[str, Any]) -> Mapping[str, Any]:
    stock = originals[_TARGET]

    def with_fp32_head(self: Any, model_config: Any, *args: Any, **kwargs: Any) -> Any:
        config = getattr(model_config, "hf_config", None)
        if config is not None and model_config.runner_type == "generate":
            if getattr(config, "head_dtype", None) is None:
                config.head_dtype = "float32"
        return stock(self, model_config, *args, **kwargs)

    return {_TARGET: with_fp32_head}
