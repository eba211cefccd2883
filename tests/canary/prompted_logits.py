"""Logits processor for the real engine: what the model answers is looked up by its prompt, in a file.

The file (``CANARY_ANSWERS``) is JSON: a list of [words, answers]. A prompt with these words in it gets the answers in
turn; the first entry that fits counts. It is read again when it changes. In an answer ``~`` before a marker spells it
in sub-words; ``{word}`` is the code word of the prompt; what stands behind ``\\f`` is said again and again. A token
that the request's grammar forbids is not said: the model says what it likes best of what is left.
"""

from __future__ import annotations

import itertools
import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer
from vllm.v1.sample.logits_processor import AdapterLogitsProcessor

_MARKER = re.compile(r"(~?</?(?:think|tool_call)>)")
_WORD = re.compile(r"code word (w\w+)")


class Scripted(AdapterLogitsProcessor):
    """Forces each token of the answer; what the engine does after it (budgets, grammars) still happens."""

    def __init__(self, vllm_config: Any, device: torch.device, is_pin_memory: bool) -> None:
        super().__init__(vllm_config, device, is_pin_memory)
        self._end = int(vllm_config.model_config.hf_config.eos_token_id)
        self._tokenizer = Tokenizer.from_file(str(Path(vllm_config.model_config.tokenizer) / "tokenizer.json"))
        self._file = Path(os.environ["CANARY_ANSWERS"])
        self._read = 0
        self._rules: list[tuple[str, Any]] = []

    def is_argmax_invariant(self) -> bool:
        return False

    def new_req_logits_processor(self, params: Any) -> Callable[[list[int], list[int], torch.Tensor], torch.Tensor]:
        chosen: list[tuple[list[int], list[int]]] = []

        def force(prompt: list[int], output: list[int], logits: torch.Tensor) -> torch.Tensor:
            if not chosen:
                chosen.append(self._answer(self._tokenizer.decode(prompt, skip_special_tokens=False)))
            first, again = chosen[0]
            at = len(output) - len(first)
            token = first[at] if at < 0 else again[at % len(again)]
            if logits[token] == float("-inf"):
                return logits
            logits.fill_(float("-inf"))
            logits[token] = 0.0
            return logits

        return force

    def _answer(self, prompt: str) -> tuple[list[int], list[int]]:
        changed = self._file.stat().st_mtime_ns
        if changed != self._read:
            entries = json.loads(self._file.read_text())
            self._rules = [(words, itertools.cycle(answers)) for words, answers in entries]
            self._read = changed
        for words, answers in self._rules:
            if words in prompt:
                said = next(answers)
                word = _WORD.search(prompt)
                said = said.replace("{word}", word.group(1) if word else "")
                said, _, again = said.partition("\f")
                return self._ids(said), self._ids(again) or [self._end]
        return self._ids("</think>No answer."), [self._end]

    def _ids(self, text: str) -> list[int]:
        ids: list[int] = []
        for part in _MARKER.split(text):
            if part.startswith("~"):
                name = part.lstrip("~</")
                ids += self._encode(part[1:].removesuffix(name)) + self._encode(name)
            elif part:
                ids += self._encode(part)
        return ids

    def _encode(self, text: str) -> list[int]:
        return self._tokenizer.encode(text, add_special_tokens=False).ids
