"""Logits of a release's own head and logits processor, with the patches and without, beside a float32 reference.

    python -m tests.patches.weights.on_engine MODEL FILE

Runs in a process of one release that was started with ``ENGINE_OVERLAY_PROFILE=rl``; test_fp32_head judges the JSON.
The layers are the engine's own, made under the engine config that it makes of its arguments, in a real process group
of one rank, and of two ranks in forked processes. The reference is computed with torch alone.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

VOCABULARY, HIDDEN, ROWS, RANK = 203, 64, 5, 8
SOFT_CAP, SCALE = 30.0, 0.5


class Case:
    """The layers of one release under one engine config, and random weights for them."""

    def __init__(self, engine: Any, config: Any) -> None:
        import torch

        self.engine, self.config, self.torch = engine, config, torch
        layers = "model_executor.layers."
        self.processors = engine.module(layers + "logits_processor")
        self.embeddings = engine.module(layers + "vocab_parallel_embedding")
        self.hidden = self.random(1, ROWS, HIDDEN)
        self.bias = self.random(2, VOCABULARY)
        self.weight, self.other = self.random(3, VOCABULARY, HIDDEN), self.random(4, VOCABULARY, HIDDEN)
        self.lora = self.random(5, RANK, HIDDEN) / 8, self.random(6, VOCABULARY, RANK) / 8

    def random(self, seed: int, *shape: int) -> Any:
        generator = self.torch.Generator().manual_seed(seed)
        return self.torch.randn(*shape, generator=generator).bfloat16()

    def head(self, kind: str, weight: Any) -> Any:
        """A head with this weight, loaded by its own loader: of its own, or the embedding's."""
        made = self.embeddings.VocabParallelEmbedding if kind == "tied" else self.embeddings.ParallelLMHead
        head = made(VOCABULARY, HIDDEN, params_dtype=self.torch.bfloat16)
        if kind == "tie_weights":
            embedding = self.embeddings.VocabParallelEmbedding(VOCABULARY, HIDDEN, params_dtype=self.torch.bfloat16)
            embedding.weight_loader(embedding.weight, weight)
            head = head.tie_weights(embedding)
        else:
            head.weight_loader(head.weight, weight)
        head.quant_method.process_weights_after_loading(head)
        return head

    def reference(self, weight: Any, *, bias: bool = False, cap: float | None = None, scale: float = 1.0) -> Any:
        logits = self.hidden.float() @ weight.float().t()
        if bias:
            logits = logits + self.bias.float()
        if cap is not None:
            logits = self.torch.tanh(logits / cap) * cap
        return logits * scale

    def compare(self, found: Any, wanted: Any) -> dict[str, Any]:
        """The dtype, and the largest error relative to the largest logit."""
        if found is None:  # another rank has it
            return {}
        assert found.shape == wanted.shape, (found.shape, wanted.shape)
        error = (found.float() - wanted).abs().max() / wanted.abs().max()
        return {"dtype": str(found.dtype), "error": error.item()}

    def all(self, ranks: int) -> dict[str, Any]:
        seen: dict[str, Any] = {}
        for kind in ("untied", "tied", "tie_weights"):
            processor, head = self.processors.LogitsProcessor(VOCABULARY), self.head(kind, self.weight)
            seen[kind] = self.compare(processor(head, self.hidden), self.reference(self.weight))
            # As a trainer's update does it: into the same parameter.
            head.weight_loader(head.weight, self.other)
            updated = self.compare(processor(head, self.hidden), self.reference(self.other))
            seen[f"{kind}, updated in place"] = updated
            top = processor.get_top_tokens(head, self.hidden)
            exact = self.reference(self.other).argmax(-1)
            seen[f"{kind}, top tokens"] = {"right": int((top == exact).sum())}
        head = self.head("untied", self.weight)
        capped = self.processors.LogitsProcessor(VOCABULARY, soft_cap=SOFT_CAP, scale=SCALE)
        wanted = self.reference(self.weight, cap=SOFT_CAP, scale=SCALE)
        seen["soft cap and scale"] = self.compare(capped(head, self.hidden), wanted)
        if ranks == 1:
            biased = self.processors.LogitsProcessor(VOCABULARY)
            padded = self.torch.nn.functional.pad(self.bias, (0, head.weight.shape[0] - VOCABULARY))
            wanted = self.reference(self.weight, bias=True)
            seen["bias"] = self.compare(biased(head, self.hidden, padded), wanted)
        seen["lora"] = self.with_lora(head)
        return seen

    def with_lora(self, head: Any) -> dict[str, Any]:
        base = self.processors.LogitsProcessor(VOCABULARY)
        lora = self.engine.module("lora.layers.logits_processor")
        mapping = head.get_sharded_to_full_mapping()
        cpu = self.torch.device("cpu")
        processor = lora.LogitsProcessorWithLoRA(base, HIDDEN, self.torch.bfloat16, cpu, mapping)
        tools = self.engine.module("utils.torch_utils")
        if getattr(getattr(tools, "async_tensor_h2d", None), "__defaults__", None) == (True,):
            # vllm 0.22 and 0.23 pin memory by default on every platform, also where none can be pinned.
            tools.async_tensor_h2d.__defaults__ = (False,)
        config = self.engine.module("config.lora").LoRAConfig(max_lora_rank=RANK, max_loras=1)
        config.lora_dtype = self.torch.bfloat16
        processor.create_lora_weights(1, config)
        processor.set_lora(0, *self.lora)
        wrapper = self.engine.module("lora.punica_wrapper.punica_cpu").PunicaWrapperCPU(64, 8, "cpu")
        layers = self.engine.module("lora.layers")
        rows = tuple([7] * ROWS)
        wrapper.update_metadata(layers.LoRAMapping(rows, rows, is_prefill=False), [7], 1, VOCABULARY)
        processor.set_mapping(wrapper)
        a, b = (part.float() for part in self.lora)
        wanted = self.reference(self.weight) + (self.hidden.float() @ a.t()) @ b.t()
        return self.compare(processor(head, self.hidden), wanted)

    def refused(self) -> str:
        """What is said of a head that is quantised."""
        head = self.head("untied", self.weight)
        fp8 = self.engine.module("model_executor.layers.quantization.fp8").Fp8LinearMethod
        head.quant_method = fp8.__new__(fp8)
        try:
            self.processors.LogitsProcessor(VOCABULARY)(head, self.hidden)
        except ValueError as error:
            return str(error)
        return "nothing"


def grouped(engine: Any, config: Any, ranks: int, rank: int, meeting: str, run: Callable[[], Any]) -> Any:
    """``run()`` as one of ``ranks`` tensor parallel ranks that meet at the file ``meeting``."""
    whole = engine.module("config")
    enter = getattr(whole, "set_current_vllm_config", None) or whole.set_current_aphrodite_config
    state = engine.module("distributed.parallel_state")
    with enter(config):
        state.init_distributed_environment(ranks, rank, f"file://{meeting}", rank, "gloo")
        state.initialize_model_parallel(ranks)
        try:
            return run()
        finally:
            state.destroy_model_parallel()
            state.destroy_distributed_environment()


def of_two_ranks(engine: Any, config: Any) -> dict[str, Any]:
    """What rank 0 of two sees; both are forks of this process."""
    with tempfile.TemporaryDirectory() as folder:
        children = []
        for rank in range(2):
            child = os.fork()
            if child == 0:
                status = 1
                try:
                    found = grouped(
                        engine, config, 2, rank, f"{folder}/meeting", lambda: Case(engine, config).all(2)
                    )
                    Path(folder, f"{rank}.json").write_text(json.dumps(found), encoding="utf-8")
                    status = 0
                except BaseException:
                    import traceback

                    traceback.print_exc()
                finally:
                    os._exit(status)
            children.append(child)
        ended = [os.waitpid(child, 0)[1] for child in children]
        if any(ended):
            return {"failed": ended}
        return json.loads(Path(folder, "0.json").read_text(encoding="utf-8"))


def main(model: str, out: str) -> None:
    from engine_overlay import engines, importer

    engine = engines.installed()[0]
    arguments = engine.module("engine.arg_utils")
    for name in ("layers.logits_processor", "layers.vocab_parallel_embedding"):
        engine.module(f"model_executor.{name}")
    engine.module("lora.layers.logits_processor")
    ledger = importer.overlay.ledgers[engine.name]

    def config(**given: Any) -> Any:
        args = arguments.EngineArgs(model=model, dtype="bfloat16", max_model_len=256, max_num_seqs=4, **given)
        return args.create_engine_config()

    def measured(made: Any) -> dict[str, Any]:
        with tempfile.TemporaryDirectory() as folder:
            return grouped(engine, made, 1, 0, f"{folder}/meeting", lambda: Case(engine, made).all(1))

    found: dict[str, Any] = {"states": {i: [v.code, ledger.state(i)[0]] for i, v in ledger.verdicts.items()}}
    found["on, two ranks"] = of_two_ranks(engine, config())
    found["on"] = measured(config())
    found["on, the model's dtype"] = measured(config(hf_overrides={"head_dtype": "model"}))
    with tempfile.TemporaryDirectory() as folder:
        made = config()
        found["refused"] = grouped(engine, made, 1, 0, f"{folder}/meeting", lambda: Case(engine, made).refused())
    ledger.undo_all()
    found["off"] = measured(config())
    Path(out).write_text(json.dumps(found, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
