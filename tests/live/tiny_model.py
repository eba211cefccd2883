"""A tiny Qwen3 with random weights and a byte-level tokenizer whose markers are single added tokens.

    python -m tests.live.tiny_model FOLDER
"""

from __future__ import annotations

import sys
from pathlib import Path

MARKERS = ("<think>", "</think>", "<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>")
"""Each is one token when it is written whole; spelled with sub-words it is several."""

CONTEXT = 8192
"""Positions, enough for an answer of 2,000 tokens and its prompt."""

_RECIPE = "3"
# Every word of it becomes one token.
_CORPUS = (
    "The weather in Paris is nice today, and the answer to the question is written below (as said).",
    "I should look at the weather first. I should add the two. I should count. The answer is 42. HALT",
    "one two three four five six seven eight nine ten eleven twelve. The tag closes it. Use there.",
    "<think>think</think> <tool_call> <function=get_weather> <parameter=city> </parameter> </function>",
    "Paris and (Paris) and <Paris> Use `it` and (days) Write here or there;",
)
_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n"
    "{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n<think>\n{% endif %}"
)


def make(folder: Path) -> Path:
    """Write the model to ``folder`` unless this recipe already did; return ``folder``.

    Two runs give the same bytes.
    """
    stamp = folder / "recipe"
    if stamp.is_file() and stamp.read_text() == _RECIPE:
        return folder
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer = _tokenizer()
    tokenizer.save_pretrained(folder)
    network(len(tokenizer), tokenizer.eos_token_id).save_pretrained(folder)
    # Last, so that a run that was cut short is not taken for a model.
    stamp.write_text(_RECIPE)
    return folder


def _tokenizer():  # noqa: ANN202 - transformers is imported late
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    core = Tokenizer(models.BPE())
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=2000, initial_alphabet=alphabet, show_progress=False)
    core.train_from_iterator(_CORPUS * 10, trainer)
    core.add_special_tokens(["<|endoftext|>", "<|im_start|>", "<|im_end|>"])
    # As Qwen3 declares them: added, but not special, so they stay in the text.
    core.add_tokens([AddedToken(marker, normalized=False, special=False) for marker in MARKERS])
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=core,
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        additional_special_tokens=["<|im_start|>"],
    )
    tokenizer.chat_template = _TEMPLATE
    return tokenizer


def network(vocabulary: int, eos: int):  # noqa: ANN202 - transformers is imported late
    """A Qwen3 with random weights, the same ones each time, for a tokenizer of ``vocabulary`` tokens."""
    import torch
    from transformers import Qwen3Config, Qwen3ForCausalLM

    config = Qwen3Config(
        vocab_size=-(-vocabulary // 64) * 64,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=64,
        max_position_embeddings=CONTEXT,
        tie_word_embeddings=False,
        eos_token_id=eos,
        bos_token_id=None,
        dtype="float32",
    )
    torch.manual_seed(0)
    return Qwen3ForCausalLM(config).to(torch.float32)


if __name__ == "__main__":
    print(make(Path(sys.argv[1])))
