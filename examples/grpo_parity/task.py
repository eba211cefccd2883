"""A toy that can be learnt: the prompt names a class of tokens, the reward is the share of the answer in that class."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

VOCABULARY = 128
CLASSES = 4
PROMPT = 24
"""Tokens of a prompt; less than a block of the KV cache, so that no prefix is reused and the mode alone differs."""


def prompts(count: int, seed: int) -> list[tuple[int, list[int]]]:
    """(class, token ids) of ``count`` prompts: noise that is the same in all, then the class three times."""
    noise = [random.Random(0).randrange(CLASSES, VOCABULARY) for _ in range(PROMPT - 3)]
    chance = random.Random(seed)
    classes = [chance.randrange(CLASSES) for _ in range(count)]
    return [(kind, [*noise, kind, kind, kind]) for kind in classes]


def reward(kind: int, answer: list[int]) -> float:
    """Share of tokens that are ``kind`` modulo the number of classes: 1/4 by chance, 1 at best."""
    return sum(token % CLASSES == kind for token in answer) / len(answer)


def model(folder: Path) -> Any:
    """A random Qwen3 of 0.1 million weights in float32, written to ``folder``; the same one each time."""
    import torch
    from transformers import Qwen3Config, Qwen3ForCausalLM

    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=VOCABULARY, hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=1, head_dim=64, max_position_embeddings=256, tie_word_embeddings=False,
        eos_token_id=None, bos_token_id=None, dtype="float32",
    )  # fmt: skip
    made = Qwen3ForCausalLM(config).to(torch.float32)
    # Spread of the logits about 1: nearly, but not quite, uniform.
    torch.nn.init.normal_(made.lm_head.weight, std=0.125)
    made.save_pretrained(folder)
    return made
