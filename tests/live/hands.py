"""Hands inside the processes of a live server: what a test does to a patch there, as an operator or another tool would.

The engine loads both by its own flags: :class:`InServer` by ``--middleware``, :class:`InWorker` by
``--logits-processors``. A request to ``/hands/undo/ID`` (``redo``, ``wrap``, ``unwrap``) acts in the API server; one
with ``"hands": "undo ID"`` among its ``vllm_xargs`` acts in every worker.
"""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable
from typing import Any

import torch
from vllm.v1.sample.logits_processor import AdapterLogitsProcessor

_wrapped: list[tuple[Any, str, Any]] = []


def act(what: str, patch: str) -> str:
    """Do it in this process; the answer is what there is to say of it."""
    from engine_overlay import commit, importer

    if what == "undo":
        return "; ".join(commit.undo(patch)) or "undone"
    if what == "redo":
        commit.redo(patch)
        return "redone"
    if what == "wrap":
        ledger = next(ledger for ledger in importer.overlay.ledgers.values() if patch in ledger.verdicts)
        target = ledger.entry(patch).patch.targets[0]
        owner: Any = ledger.engine.module(target.module)
        *outer, name = target.qualname.split(".")
        for part in outer:
            owner = getattr(owner, part)
        inner = vars(owner)[name]

        @functools.wraps(inner)
        def somebody_elses(*args: Any, **kwargs: Any) -> Any:
            return inner(*args, **kwargs)

        _wrapped.append((owner, name, inner))
        setattr(owner, name, somebody_elses)
        return "wrapped"
    owner, name, inner = _wrapped.pop()
    setattr(owner, name, inner)
    return "unwrapped"


class InServer:
    """ASGI middleware of the API server."""

    def __init__(self, app: Callable[..., Awaitable[None]]) -> None:
        self.app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        parts = scope["path"].strip("/").split("/") if scope["type"] == "http" else []
        if len(parts) != 3 or parts[0] != "hands":
            await self.app(scope, receive, send)
            return
        body = act(parts[1], parts[2]).encode()
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/plain")]})
        await send({"type": "http.response.body", "body": body})


class InWorker(AdapterLogitsProcessor):
    """Changes no logits."""

    def is_argmax_invariant(self) -> bool:
        return True

    def new_req_logits_processor(self, params: Any) -> Callable[[list[int], torch.Tensor], torch.Tensor] | None:
        words = str((params.extra_args or {}).get("hands", "")).split()
        if words:
            act(*words)
        return None
