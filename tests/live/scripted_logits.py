"""Logits processor for the real engine: the request's answer is given token by token in ``vllm_xargs``.

``script`` is a JSON list of token ids; after the last one the answer ends. ``pause`` (seconds, optional) is
waited before each token, so that the engine hands out one token at a time however busy the machine is. With ``heeds``
a token that the request's grammar forbids is not said: the model says what it likes best of what is left; without it
the engine meets the token and ends the answer. A request without a script is left alone.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import torch
from vllm.v1.sample.logits_processor import AdapterLogitsProcessor

_Processor = Callable[[list[int], torch.Tensor], torch.Tensor]


class Scripted(AdapterLogitsProcessor):
    """Forces each token of the script; what the engine does after it (budgets, sampling) still happens."""

    def __init__(self, vllm_config: Any, device: torch.device, is_pin_memory: bool) -> None:
        super().__init__(vllm_config, device, is_pin_memory)
        self._end = int(vllm_config.model_config.hf_config.eos_token_id)

    def is_argmax_invariant(self) -> bool:
        return False

    def new_req_logits_processor(self, params: Any) -> _Processor | None:
        extra = params.extra_args or {}
        if "script" not in extra:
            return None
        script = [int(token) for token in json.loads(extra["script"])]
        pause = float(extra.get("pause", 0))
        heeds = bool(extra.get("heeds"))
        end = self._end

        def force(output: list[int], logits: torch.Tensor) -> torch.Tensor:
            if pause:
                time.sleep(pause)
            token = script[len(output)] if len(output) < len(script) else end
            if heeds and logits[token] == float("-inf"):
                return logits
            logits.fill_(float("-inf"))
            logits[token] = 0.0
            return logits

        return force
