"""The trainer's recomputation against the engine's own sampler, and torch tensors in the metrics."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch

from engine_overlay.rl import metrics, trainer
from engine_overlay.rl.trainer import Sampling


@pytest.mark.parametrize("top_p", [1.0, 0.9, 0.1, 1e-6])
@pytest.mark.parametrize("top_k", [-1, 1, 50, 400])
def test_the_same_tokens_are_kept_as_by_the_engine(top_p: float, top_k: int) -> None:
    from vllm.v1.sample.ops.topk_topp_sampler import apply_top_k_top_p_pytorch

    torch.manual_seed(0)
    logits = torch.randn(64, 300) * 4
    # Equal logits at the edge of the top k: the engine keeps them all.
    logits[:8] = logits[:8].round()
    rows = len(logits)
    k = None if top_k < 1 else torch.full((rows,), min(top_k, 300), dtype=torch.int32)
    p = None if top_p == 1 else torch.full((rows,), top_p)
    engine = apply_top_k_top_p_pytorch(logits.clone() / 0.7, k, p)
    assert torch.equal(trainer.processed(logits, Sampling(0.7, top_p, top_k)), engine)


def test_greedy_is_the_model_itself() -> None:
    logits = torch.randn(3, 50)
    assert torch.equal(trainer.processed(logits, Sampling(0.0, 0.5, 3)), logits)


def test_gradients_go_through_what_is_kept() -> None:
    logits = torch.tensor([[3.0, 2.0, -9.0]], requires_grad=True)
    trainer.of_tokens(trainer.processed(logits, Sampling(1.0, 0.9)), torch.tensor([0])).sum().backward()
    p = torch.softmax(torch.tensor([3.0, 2.0]), 0)
    assert logits.grad[0].tolist() == pytest.approx([1 - p[0].item(), -p[1].item(), 0.0])


def test_scores_are_those_of_a_plain_forward_pass(plain: Path) -> None:
    from transformers import AutoModelForCausalLM

    model = trainer.load(str(plain))
    other = AutoModelForCausalLM.from_pretrained(plain)
    sequences = [([1, 2, 3], [4, 5]), ([9], [8, 7, 6]), ([1, 2, 4], [4, 6]), ([5, 5], [])]
    found = trainer.score(model, sequences, Sampling(0.7, 0.9, 50))
    for i, (prompt, answer) in enumerate(sequences):
        with torch.no_grad():
            logits = other(torch.tensor([[*prompt, *answer]])).logits[0, len(prompt) - 1 : -1][: len(answer)]
        raw = torch.log_softmax(logits, -1)[range(len(answer)), answer]
        cooled = torch.log_softmax(logits / 0.7, -1)[range(len(answer)), answer]
        assert found.raw[i] == pytest.approx(raw.tolist(), abs=1e-4)
        assert found.temperature[i] == pytest.approx(cooled.tolist(), abs=1e-4)
        assert len(found.processed[i]) == len(found.entropy[i]) == len(answer)
        pairs = zip(found.processed[i], found.temperature[i], strict=True)
        assert all(p >= t - 1e-6 or math.isinf(p) for p, t in pairs)
        assert all(0 <= h <= math.log(50) + 1e-6 for h in found.entropy[i])


@pytest.mark.parametrize(("sequences", "said"), [([([], [1])], "empty prompt"), ([([1], [5000])], "vocabulary")])
def test_what_cannot_be_scored_is_said(plain: Path, sequences: list, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        trainer.score(trainer.load(str(plain)), sequences, Sampling())


@pytest.mark.parametrize("tied", [False, True])
def test_a_widened_head_is_float32_on_a_bfloat16_body(tied: bool) -> None:
    from transformers import Qwen3Config, Qwen3ForCausalLM

    torch.manual_seed(0)
    model = Qwen3ForCausalLM(
        Qwen3Config(
            vocab_size=64, hidden_size=64, intermediate_size=64, num_hidden_layers=1, num_attention_heads=1,
            num_key_value_heads=1, head_dim=64, tie_word_embeddings=tied, eos_token_id=None,
        )
    ).to(torch.bfloat16)  # fmt: skip
    ids = torch.tensor([[1, 2, 3]])
    with torch.no_grad():
        hidden = model.model(ids).last_hidden_state
        wanted = torch.nn.functional.linear(hidden.float(), model.lm_head.weight.float())
        trainer.widen_head(model)
        logits = model(ids).logits
    assert logits.dtype == torch.float32 and torch.equal(logits, wanted)
    assert model.get_input_embeddings().weight.dtype == torch.bfloat16


def test_metrics_take_tensors_of_any_type_and_give_tensors_back() -> None:
    new = torch.tensor([[-1.0, -2.0]], dtype=torch.bfloat16, requires_grad=True)
    old = torch.tensor([[-1.5, -2.0]])
    mask = torch.tensor([[True, True]])
    assert metrics.compare(new, old, mask, rewards=torch.tensor([1.0]))["ratio_new_old"] == pytest.approx(
        (math.exp(0.5) + 1) / 2
    )
    weights = metrics.truncated_weights(new, old, mask, cap=1.25)
    assert isinstance(weights, torch.Tensor) and weights.dtype == torch.bfloat16
    assert not weights.requires_grad and weights.tolist() == [[1.25, 1.0]]
    assert isinstance(metrics.truncated_weights(new.detach().float().numpy(), old, mask), np.ndarray)
    active = metrics.clip_active(metrics.log_ratio(new, old), torch.tensor([1.0]))
    assert active == 0.5
