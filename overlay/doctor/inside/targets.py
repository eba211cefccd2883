"""Who else changes what the patches change: asked with every plug-in loaded, after the patches were taken out."""

from __future__ import annotations

import contextlib
import sys
from types import FunctionType
from typing import Any

from engine_overlay import catalog, fingerprint
from engine_overlay.log import one_line


def start(asked: Any) -> dict[str, Any]:
    """Load the plug-ins as every process of the engine does; says which of them ``load`` raised."""
    if asked.engine.source("plugins") is not None:
        asked.engine.module("plugins").load_general_plugins()
    return {}


def replaced(asked: Any) -> dict[str, Any]:
    """``{"replaced": {target: {"by", "file", "wraps"}}, "unimported": {module: error}}`` for targets of the patches."""
    _without_patches(asked.engine)
    seen: dict[str, Any] = {}
    failed: dict[str, str] = {}
    for entry in catalog.load(third_party=False).entries.values():
        if asked.engine.name not in entry.patch.engines:
            continue
        for target in entry.patch.targets:
            if target.path in seen or target.module in failed or asked.engine.source(target.module) is None:
                continue
            try:
                module = asked.engine.module(target.module)
            except Exception as error:
                failed[target.module] = one_line(error)
                continue
            seen[target.path] = _other(asked.engine, module, target)
    return {"replaced": {path: who for path, who in seen.items() if who}, "unimported": failed}


def _without_patches(engine: Any) -> None:
    """Import what the patches replace, and take them out: what then differs from the sources is somebody else's."""
    from engine_overlay import importer

    ledger = importer.overlay.ledgers.get(engine.name) if importer.overlay else None
    for name in sorted(ledger.wanted_modules()) if ledger else ():
        with contextlib.suppress(Exception):
            engine.module(name.partition(".")[2])
    if ledger is not None:
        ledger.undo_all()


def _other(engine: Any, module: Any, target: Any) -> dict[str, Any] | None:
    """Where the live function comes from, when it is not the one of the engine's source."""
    owner: Any = module
    *path, name = target.qualname.split(".")
    for part in path:
        owner = vars(owner).get(part)
        if owner is None:
            return None
    raw = vars(owner).get(name)
    node = fingerprint.find(fingerprint.tree(engine.source(target.module)), target.qualname)
    if raw is None or node is None:
        # A name that patches add: if it is there, and dataclasses did not make it, it is somebody else's.
        made = getattr(_function(raw), "__globals__", {}).get("__name__") == module.__name__
        return _described(raw) if isinstance(_function(raw), FunctionType) and not made else None
    if getattr(node, "decorator_list", None) and not isinstance(raw, (property, staticmethod, classmethod)):
        return None
    function = _function(raw)
    if isinstance(function, FunctionType) and function.__code__.co_filename == getattr(module, "__file__", None):
        return None
    return _described(raw) if hasattr(node, "decorator_list") else None


def _described(raw: Any) -> dict[str, Any]:
    function = _function(raw)
    code = getattr(function, "__code__", None)
    # functools.wraps copies the name of the module; the globals are its real one.
    by = getattr(function, "__globals__", {}).get("__name__") or type(function).__module__
    return {
        "by": by,
        "file": code.co_filename if code else getattr(sys.modules.get(by), "__file__", None),
        "wraps": hasattr(function, "__wrapped__"),
    }


def _function(raw: Any) -> Any:
    if isinstance(raw, (staticmethod, classmethod)):
        return raw.__func__
    return raw.fget if isinstance(raw, property) else raw
