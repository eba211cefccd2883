"""The executor of a release's own engine core in a process of its own, for ``--distributed-executor-backend``.

Text is what a request's script says (see :mod:`tests.budget.deep_core`); a pooling request gets a vector of ones.
"""

from __future__ import annotations

from typing import Any

from tests.budget import deep_core

ENGINE = "vllm"


class Scripted(deep_core.executor_class(ENGINE)):  # type: ignore[misc]
    @property
    def supported_tasks(self) -> tuple[str, ...]:
        pools = self.vllm_config.model_config.runner_type == "pooling"
        return ("embed",) if pools else ("generate",)

    def _add(self, new: Any) -> None:
        if new.pooling_params is None:
            super()._add(new)

    def _step(self, masks: dict[str, Any]) -> Any:
        if self._answers:
            return super()._step(masks)
        import torch

        ids = list(self._scheduled.num_scheduled_tokens)
        return deep_core.output(ENGINE, ids, sampled_token_ids=[], pooler_output=[torch.ones(64) for _ in ids])
