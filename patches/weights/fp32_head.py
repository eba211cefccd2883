"""Accumulate the last projection in float32 where the engine has no switch for it.

Symptom: the logits of a bfloat16 model are rounded to bfloat16 (a relative error of up to 0.4 %), and
``--hf-overrides '{"head_dtype": "float32"}'`` changes nothing: "head_dtype currently only supports pooling models".

Cause: ``LogitsProcessor`` applies the head in the dtype of the hidden states; later releases ask for
``head_dtype``.

Change: for a generation model the product of hidden states and head is taken in ``head_dtype`` of the model's
config or of ``hf_overrides``, which is "float32" where neither says anything ("model" keeps the model's dtype). It
holds for tied and untied heads, scaled and capped logits, a bias, LoRA and tensor parallel ranks. No copy of the
weight is kept: the weight is read anew at each step, so that an update in place counts at once. Pooling models stay
as they are.

Risk: logits take twice the memory, 4 bytes x batch x vocabulary, also when gathered over tensor parallel ranks. On
CUDA and ROCm the weight is read as it is; elsewhere each step makes a float32 copy of the head for its own length:
4 bytes x vocabulary x hidden size (vocabulary 152k, hidden size 4096: 2.5 GB). A quantised head is refused with an
error when the engine starts; then ENGINE_OVERLAY_DISABLE=fp32_head.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from engine_overlay.engines import Engine
from engine_overlay.record import Finding, Outcome, Patch, Range, Target

_PROCESSOR = "model_executor.layers.logits_processor:LogitsProcessor"
_INIT, _LOGITS, _TOP = (f"{_PROCESSOR}.{name}" for name in ("__init__", "_get_logits", "get_top_tokens"))
_LORA = "lora.layers.logits_processor:LogitsProcessorWithLoRA._get_logits"

PATCH = Patch(
    id="fp32_head",
    engines={"vllm": Range("0.18.0", "0.25.1"), "aphrodite": Range("0.20.0", "0.21.0")},
    targets=(
        Target(path=_INIT, bodies=("b52bf7e4bcb9",)),
        Target(path=_LOGITS, bodies=("4dcbc5081d98",)),
        Target(path=_TOP, bodies=("ea161aacd614",)),
        Target(path=_LORA, bodies=("85632d5cfa53",)),
    ),
    reads=(
        Target(path="config.model:_get_head_dtype", bodies=("340ffc980f41",)),
        # Caps and scales the logits in the dtype they come in.
        Target(path=f"{_PROCESSOR}.forward", bodies=("2c8e3be37112",)),
        Target(path=f"{_PROCESSOR}._gather_logits", bodies=("4eba55087d00",)),
    ),
    upstream=(),
    relationship="backport",
    introduced_in={"vllm": "0.18.0", "aphrodite": "0.20.0"},
    fixed_in={"vllm": "0.26.0", "aphrodite": "0.22.0"},
    superseded_by="fp32_head_native",
    group=None,
    requires=(),
    conflicts=(),
    after=(),
    default=False,
    default_reason="it costs memory, and only a comparison with a trainer needs it",
    scope=("worker",),
    native_alternative=None,
    remove_when="vllm 0.25 and aphrodite 0.21 are no longer supported",
)

_DTYPE = "_engine_overlay_head_dtype"
"""Attribute of a logits processor: the dtype of its head, or None for the model's own."""


def head_dtype(engine: Engine, model_config: Any) -> Any:
    """The ``torch.dtype`` of the head of this model, or None when it stays as the engine has it.

    Raises ValueError for a ``head_dtype`` that is no dtype.
    """
    import torch

    if model_config is None or model_config.runner_type == "pooling":
        return None
    config = model_config.hf_config
    if getattr(config, "head_dtype", None) is None:
        wanted = torch.float32
    else:
        asked = engine.module("config.model")._get_head_dtype
        wanted = asked(config=config, dtype=model_config.dtype, runner_type=model_config.runner_type)
    if wanted not in engine.module("platforms").current_platform.supported_dtypes:
        return None
    return None if wanted == model_config.dtype else wanted


def project(weight: Any, hidden: Any, bias: Any, dtype: Any) -> Any:
    """``hidden`` (..., H) times ``weight`` (V, H) plus ``bias`` (V), accumulated and kept in ``dtype``: (..., V)."""
    import torch

    half = hidden.dtype in (torch.float16, torch.bfloat16) and weight.dtype == hidden.dtype
    if dtype == torch.float32 and half and hidden.is_cuda:
        # The GPU accumulates in float32 anyway; this only keeps the result from being rounded.
        flat = hidden.reshape(-1, hidden.shape[-1])
        product = torch.mm(flat, weight.t(), out_dtype=dtype).reshape(*hidden.shape[:-1], -1)
        return product if bias is None else product + bias.to(dtype)
    return torch.nn.functional.linear(hidden.to(dtype), weight.to(dtype), None if bias is None else bias.to(dtype))


class Head:
    """Stands for a head while its logits are computed: its product is taken in ``dtype``, all else is its own."""

    def __init__(self, layer: Any, dtype: Any, plain: tuple[type, ...]) -> None:
        self._layer, self._dtype, self._plain = layer, dtype, plain

    def __getattr__(self, name: str) -> Any:
        return getattr(self._layer, name)

    @property
    def quant_method(self) -> Head:
        return self

    def apply(self, layer: Any, hidden: Any, bias: Any = None) -> Any:
        method = self._layer.quant_method
        if self._dtype == hidden.dtype:
            return method.apply(self._layer, hidden, bias=bias)
        if not isinstance(method, self._plain):
            raise ValueError(
                f"engine-overlay: fp32_head: the lm_head is quantised ({type(method).__name__}), and only a plain one "
                f"can be multiplied in {self._dtype}; set ENGINE_OVERLAY_DISABLE=fp32_head, or "
                """--hf-overrides '{"head_dtype": "model"}'"""
            )
        return project(self._layer.weight, hidden, bias, self._dtype)


def probe(engine: Engine) -> Finding:
    """Compute logits of a bfloat16 head with the release's own logits processor."""
    import torch
    from transformers import PretrainedConfig

    module = engine.module("model_executor.layers.logits_processor")
    if hasattr(module.LogitsProcessor, "_apply_head"):
        return Finding(Outcome.ABSENT, "this release has head_dtype for generation models")
    embedding = engine.module("model_executor.layers.vocab_parallel_embedding")
    head = torch.nn.Module()
    generator = torch.Generator().manual_seed(0)
    head.weight = torch.nn.Parameter(torch.randn(8, 64, generator=generator).bfloat16(), requires_grad=False)
    head.quant_method = embedding.UnquantizedEmbeddingMethod()
    head.quant_method.process_weights_after_loading(head)
    config_class = engine.module("config").ModelConfig
    # Its constructor would want a model on disk.
    model_config = config_class.__new__(config_class)
    for name, value in {
        "hf_config": PretrainedConfig(),
        "dtype": torch.bfloat16,
        "runner_type": "generate",
    }.items():
        object.__setattr__(model_config, name, value)
    with current_config(engine, model_config):
        processor = module.LogitsProcessor(8)
    processor._gather_logits = lambda logits: logits  # no process group is there to gather over
    hidden = torch.randn(2, 64, generator=generator).bfloat16()
    found = processor._get_logits(hidden, head, None)
    off = (found.float() - hidden.float() @ head.weight.float().t()).abs().max().item()
    seen = f"logits of a bfloat16 head are {found.dtype}, {'exact to 1e-5' if off < 1e-5 else 'rounded'}"
    return Finding(Outcome.ABSENT if found.dtype == torch.float32 and off < 1e-5 else Outcome.PRESENT, seen)


def current_config(engine: Engine, model_config: Any) -> Any:
    """A context in which the engine's current config has this model config."""
    config = engine.module("config")
    made = getattr(config, "VllmConfig", None) or config.AphroditeConfig
    whole = made.__new__(made)
    # Layers ask the config whether they run as they are; nothing else of it is read here.
    compilation = config.CompilationConfig(custom_ops=["none"])
    for name, value in {"model_config": model_config, "compilation_config": compilation}.items():
        object.__setattr__(whole, name, value)
    enter = getattr(config, "set_current_vllm_config", None) or config.set_current_aphrodite_config
    return enter(whole)


def build(engine: Engine, originals: Mapping[str, Any]) -> Mapping[str, Any]:
    def plain() -> tuple[type, ...]:
        layers = engine.module("model_executor.layers.vocab_parallel_embedding")
        linear = engine.module("model_executor.layers.linear")
        return layers.UnquantizedEmbeddingMethod, linear.UnquantizedLinearMethod

    def current() -> Any:
        config = engine.module("config")
        for name in ("get_current_vllm_config_or_none", "get_current_aphrodite_config_or_none"):
            if hasattr(config, name):
                return getattr(config, name)()
        return None

    stock_init = originals[_INIT]

    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        stock_init(self, *args, **kwargs)
        found = current()
        setattr(self, _DTYPE, head_dtype(engine, found.model_config) if found is not None else None)

    def in_head_dtype(stock: Any) -> Any:
        def wrapper(self: Any, *args: Any, **kwargs: Any) -> Any:
            # A processor with LoRA stands around the processor that knows the dtype.
            dtype = getattr(getattr(self, "base_layer", self), _DTYPE, None)
            if dtype is None:
                return stock(self, *args, **kwargs)

            def stand_in(value: Any) -> Any:
                layer = getattr(value, "base_layer", value)
                return Head(layer, dtype, plain()) if hasattr(layer, "quant_method") else value

            return stock(self, *map(stand_in, args), **{key: stand_in(value) for key, value in kwargs.items()})

        return wrapper

    return {_INIT: __init__, **{path: in_head_dtype(originals[path]) for path in (_LOGITS, _TOP, _LORA)}}
