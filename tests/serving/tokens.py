"""The tokenizer of the tiny model, as files and as a client sees it: one token per byte, and the markers.

The id of a byte is the byte itself. Markers follow in the order of :data:`ADDED`. So a client can say which
tokens a text is made of without a tokenizer library, and a marker can be sent as its own token or spelled
out.
"""

from __future__ import annotations

import json
from pathlib import Path

SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
MARKERS = ("<think>", "</think>", "<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>")
ADDED = (*SPECIAL, *MARKERS)
EOS = 256 + SPECIAL.index("<|im_end|>")
VOCABULARY = 320
"""Size of the model's embedding: the tokens, rounded up to a multiple of 64."""

_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n"
    "{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n<think>\n{% endif %}"
)
_MODEL = {
    "architectures": ["Qwen3ForCausalLM"],
    "model_type": "qwen3",
    "vocab_size": VOCABULARY,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 64,
    "max_position_embeddings": 4096,
    "tie_word_embeddings": False,
    "bos_token_id": None,
    "eos_token_id": EOS,
    "torch_dtype": "float32",
}


def whole(text: str) -> list[int]:
    """The ids of ``text`` with every marker as its own token."""
    ids: list[int] = []
    while text:
        marker = next((marker for marker in ADDED if text.startswith(marker)), None)
        if marker is None:
            ids.extend(text[0].encode())
        else:
            ids.append(256 + ADDED.index(marker))
        text = text[len(marker or text[0]) :]
    return ids


def spelled(text: str) -> list[int]:
    """The ids of ``text`` with every marker spelled out in ordinary tokens."""
    return list(text.encode())


def write_model(folder: Path) -> None:
    """Write configuration and tokenizer of the model into ``folder``; it has no weights."""
    folder.mkdir(parents=True, exist_ok=True)
    letters = byte_letters()
    added = [
        {"id": 256 + position, "content": text, "special": text in SPECIAL, "single_word": False}
        | {"lstrip": False, "rstrip": False, "normalized": False}
        for position, text in enumerate(ADDED)
    ]
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    vocabulary = {letters[byte]: byte for byte in range(256)}
    tokenizer = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": added,
        "normalizer": None,
        "pre_tokenizer": byte_level,
        "post_processor": None,
        "decoder": byte_level,
        "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None}
        | {"end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False}
        | {"vocab": vocabulary, "merges": []},
    }
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": "<|im_end|>",
        "pad_token": "<|endoftext|>",
        "additional_special_tokens": ["<|im_start|>"],
        "chat_template": _TEMPLATE,
        "model_max_length": 4096,
        "clean_up_tokenization_spaces": False,
    }
    for name, data in (("config", _MODEL), ("tokenizer", tokenizer), ("tokenizer_config", settings)):
        (folder / f"{name}.json").write_text(json.dumps(data), encoding="utf-8")


def byte_letters() -> list[str]:
    """For each byte the letter that byte-level tokenizers write it as: itself where it can be printed."""
    plain = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    rest = (byte for byte in range(256) if byte not in plain)
    stand_in = {byte: chr(256 + position) for position, byte in enumerate(rest)}
    return [stand_in.get(byte, chr(byte)) for byte in range(256)]
