"""Random Qwen3 models that differ from a trained one in nothing that matters for parity.

    python -m tests.live_rl.models FOLDER [plain|peaked]
"""

from __future__ import annotations

import sys
from pathlib import Path

from tests.live import tiny_model

LOGIT_STD = {"plain": 3.5, "peaked": 6.4}
"""Spread of the logits. ``peaked`` is like a trained model, where rounding of the head shows."""

_RECIPE = "2"
_HIDDEN = 256


def make(folder: Path, kind: str = "plain") -> Path:
    """Write the model of this kind, in float32, unless it is there; two runs give the same weights."""
    stamp = folder / "recipe"
    if stamp.is_file() and stamp.read_text() == _RECIPE + kind:
        return folder
    import torch
    from transformers import Qwen3Config, Qwen3ForCausalLM

    folder.mkdir(parents=True, exist_ok=True)
    tokenizer = tiny_model._tokenizer()
    tokenizer.save_pretrained(folder)
    config = Qwen3Config(
        vocab_size=4096,
        hidden_size=_HIDDEN,
        intermediate_size=512,
        num_hidden_layers=6,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=64,
        max_position_embeddings=2048,
        tie_word_embeddings=False,
        # A token that is hardly ever sampled, so nearly all sequences have one length.
        eos_token_id=4095,
        bos_token_id=None,
        initializer_range=0.02,
        dtype="float32",
    )
    torch.manual_seed(0)
    model = Qwen3ForCausalLM(config).to(torch.float32)
    # The last norm gives unit hidden states, so this makes the logits' spread.
    torch.nn.init.normal_(model.lm_head.weight, std=LOGIT_STD[kind] / _HIDDEN**0.5)
    model.save_pretrained(folder)
    stamp.write_text(_RECIPE + kind)
    return folder


def moved(source: Path, folder: Path, share: float = 0.02) -> Path:
    """The model in ``source`` with noise of ``share`` of each weight's spread, in ``folder``."""
    stamp = folder / "recipe"
    if stamp.is_file() and stamp.read_text() == f"{_RECIPE} {share}":
        return folder
    import torch
    from transformers import Qwen3ForCausalLM

    model = Qwen3ForCausalLM.from_pretrained(source)
    torch.manual_seed(1)
    with torch.no_grad():
        for weight in model.parameters():
            weight += torch.randn_like(weight) * weight.std() * share
    model.save_pretrained(folder)
    stamp.write_text(f"{_RECIPE} {share}")
    return folder


def truncated(source: Path, folder: Path) -> Path:
    """The model in ``source`` in several files, the last of which is cut off in the middle: loading raises half way."""
    if (folder / "recipe").is_file():
        return folder
    from transformers import Qwen3ForCausalLM

    Qwen3ForCausalLM.from_pretrained(source).save_pretrained(folder, max_shard_size="8MB")
    last = max(folder.glob("*.safetensors"))
    last.write_bytes(last.read_bytes()[: last.stat().st_size // 2])
    (folder / "recipe").write_text(_RECIPE)
    return folder


if __name__ == "__main__":
    print(make(Path(sys.argv[1]), *sys.argv[2:3]))
