"""One replaced attribute: how it is staged, dressed, found again under other wrappers, and taken out by identity."""

from __future__ import annotations

import functools
import sys
import weakref
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from types import FunctionType, ModuleType
from typing import Any

from engine_overlay import fingerprint
from engine_overlay.engines import Engine
from engine_overlay.record import Target

MARK = "__engine_overlay__"
"""Attribute of every replacement: the id of its patch. ``functools.wraps`` copies it, so it proves nothing."""

_ours: weakref.WeakSet[FunctionType] = weakref.WeakSet()

NOTHING = object()


class Displaced(RuntimeError):
    """The target is not what the engine's source says: somebody else replaced it first."""


@dataclass(slots=True)
class Change:
    """One replaced attribute. ``before`` is the raw attribute of the owner's own namespace, or ``NOTHING``."""

    owner: Any
    name: str
    before: Any
    after: Any
    alias: bool

    def now(self) -> Any:
        return vars(self.owner).get(self.name, NOTHING)

    def put(self) -> None:
        setattr(self.owner, self.name, self.after)

    def take_out(self) -> None:
        if self.before is NOTHING:
            delattr(self.owner, self.name)
        else:
            setattr(self.owner, self.name, self.before)


def resolve(module: ModuleType, qualname: str) -> tuple[Any, str]:
    owner: Any = module
    *path, name = qualname.split(".")
    for part in path:
        if part not in vars(owner):
            raise AttributeError(f"{part} is not defined in {getattr(owner, '__name__', owner)!s}")
        owner = vars(owner)[part]
    return owner, name


def check_pristine(engine: Engine, target: Target, module: ModuleType, raw: Any) -> None:
    """Raise Displaced when the live attribute is not the function that stands in the module's source."""
    function = _function(raw)
    if raw is NOTHING or _is_ours(function):
        return
    path = engine.source(target.module)
    node = fingerprint.find(fingerprint.tree(path), target.qualname) if path else None
    if not hasattr(node, "decorator_list") or (
        node.decorator_list and not isinstance(raw, (property, staticmethod, classmethod))
    ):
        return
    code = getattr(function, "__code__", None)
    if not isinstance(function, FunctionType) or code is None or code.co_filename != getattr(module, "__file__", None):
        where = f" in {code.co_filename}" if code is not None else ""
        raise Displaced(f"{target.qualname} was already replaced by {name_of(raw)}{where}; find out who does that")


def _is_ours(function: Any) -> bool:
    return isinstance(function, FunctionType) and function in _ours


def _function(raw: Any) -> Any:
    if isinstance(raw, (staticmethod, classmethod)):
        return raw.__func__
    if isinstance(raw, property):
        return raw.fget
    return raw


def dress(new: Any, before: Any, patch_id: str) -> Any:
    """Give the replacement the original's kind and metadata, and the overlay's mark."""
    if not callable(new) and not isinstance(new, (property, staticmethod, classmethod)):
        raise TypeError(f"build() returned {type(new).__name__}, which is neither callable nor a property")
    if isinstance(before, property) and not isinstance(new, property):
        raise TypeError("build() must return a property for a property")
    for kind in (staticmethod, classmethod):
        if isinstance(before, kind) and not isinstance(new, kind):
            new = kind(new)
    inner, old = _function(new), _function(before)
    if isinstance(inner, FunctionType):
        if isinstance(old, FunctionType) and inner is not old:
            functools.update_wrapper(inner, old)
        setattr(inner, MARK, patch_id)
        _ours.add(inner)
    return new


def aliases(engine: Engine, owner: Any, name: str, before: Any, after: Any) -> Iterator[Change]:
    """References to the original that others already took: ``from m import f``, ``g = Base.f`` in a subclass."""
    if before is NOTHING:
        return
    if isinstance(owner, ModuleType):
        prefix = engine.name + "."
        for module_name, module in list(sys.modules.items()):
            if module_name != engine.name and not module_name.startswith(prefix) or not isinstance(module, ModuleType):
                continue
            for key, value in list(vars(module).items()):
                if value is before and (module, key) != (owner, name):
                    yield Change(module, key, before, after, alias=True)
    elif isinstance(owner, type):
        for cls in (owner, *_subclasses(owner)):
            for key, value in list(vars(cls).items()):
                if value is before and (cls, key) != (owner, name):
                    yield Change(cls, key, before, after, alias=True)


def _subclasses(cls: type) -> Iterable[type]:
    for sub in type.__subclasses__(cls):
        yield sub
        yield from _subclasses(sub)


def _wrapped(obj: Any) -> Any:
    inner = _function(obj)
    if inner is not obj:
        return inner
    return getattr(obj, "__wrapped__", None)


def stacked_on(now: Any, mine: Any) -> bool:
    """Whether another patch of the overlay stands on mine; that is order, not displacement."""
    return _is_ours(_function(now)) and holder_of(now, mine) is not None


def holder_of(now: Any, mine: Any) -> Any:
    """The wrapper that holds ``mine`` in the chain of ``__wrapped__`` that starts at ``now``, or None."""
    obj, target = now, _function(mine)
    for _ in range(64):
        inner = _wrapped(obj)
        if inner is None or obj is NOTHING:
            return None
        if inner is mine or inner is target:
            return obj
        obj = inner
    return None


def take_out(change: Change) -> str | None:
    """Undo one change by identity; a line when somebody else's wrapper keeps it in."""
    now = change.now()
    if now is change.after:
        change.take_out()
        return None
    if now is change.before or now is NOTHING:
        return None
    holder = holder_of(now, change.after)
    if holder is None:
        return None if change.alias else f"{name_of(now)} replaced it meanwhile and stays"
    if change.before is not NOTHING and _splice(holder, _function(change.after), _function(change.before)):
        return None
    return f"{name_of(now)} was put over it and still calls it; undo that first"


def _splice(holder: Any, mine: Any, before: Any) -> bool:
    """Make a wrapper that holds ``mine`` hold ``before`` instead: in its closure, or by ``__wrapped__`` for a proxy."""
    cells = [c for c in getattr(holder, "__closure__", None) or () if _cell(c) is mine]
    proxy = not isinstance(holder, FunctionType) and type(holder).__module__.partition(".")[0] == "wrapt"
    if not cells and not proxy:
        return False
    for cell in cells:
        cell.cell_contents = before
    holder.__wrapped__ = before
    return True


def _cell(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return None


def name_of(obj: Any) -> str:
    if obj is NOTHING:
        return "nothing"
    function = _function(obj)
    module = getattr(function, "__module__", None)
    name = getattr(function, "__qualname__", None) or type(obj).__name__
    mark = getattr(function, MARK, None) if _is_ours(function) else None
    return f"{module}.{name}" + (f" (patch {mark})" if mark else "")
