"""The step in which engines give their arguments defaults, with one patch around a stock step that is made up."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any


class AsyncScheduler:
    pass


class PhraseScheduler(AsyncScheduler):
    pass


class OwnScheduler:
    pass


def defaulted(patch: Any, model: Any = None, **given: Any) -> SimpleNamespace:
    """The arguments behind the patched default step, whose stock part turns None into True."""

    def stock(self: Any, model_config: Any) -> None:
        if self.enable_prefix_caching is None:
            self.enable_prefix_caching = True

    modules = {"v1.core.sched.async_scheduler": SimpleNamespace(AsyncScheduler=AsyncScheduler)}
    engine = SimpleNamespace(module=modules.__getitem__)
    (path,) = (target.path for target in patch.PATCH.targets)
    unset = {"enable_prefix_caching": None, "async_scheduling": None, "scheduler_cls": None}
    args = SimpleNamespace(**unset | given)
    patch.build(engine, {path: stock})[path](args, model)
    return args
