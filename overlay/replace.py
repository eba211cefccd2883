"""One replaced attribute: how it is staged, dressed, found again under other wrappers, and taken out by identity."""

from __future__ import annotations

import functools
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from types import FunctionType, ModuleType
from typing import Any

from engine_overlay import fingerprint
from engine_overlay.engines import Engine
from engine_overlay.record import Target
from engine_overlay.wrappers import (
    MARK,
    NOTHING,
    OBSERVERS,
    chain,
    claim,
    code_of,
    function_of,
    holder_of,
    innermost,
    is_kind,
    is_ours,
    maker_of,
    name_of,
    splice,
)


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


def check_pristine(engine: Engine, target: Target, module: ModuleType, raw: Any, patch_id: str) -> None:
    """Raise Displaced when the live attribute is not the function that stands in the module's source.

    Over that may lie other patches of the overlay, and wrappers of :data:`~engine_overlay.wrappers.OBSERVERS`.
    """
    if raw is NOTHING:
        return
    links = list(chain(raw))
    if any(is_ours(link) and getattr(link, MARK, None) == patch_id for link in links):
        raise Displaced(f"{target.qualname} has this patch in it already, and it is never put in twice")
    path = engine.source(target.module)
    node = fingerprint.find(fingerprint.tree(path), target.qualname) if path else None
    if not hasattr(node, "decorator_list") or (
        node.decorator_list and not isinstance(raw, (property, staticmethod, classmethod))
    ):
        return
    stranger = links[-1]
    for link in links:
        if is_of_source(link, module):
            return
        if not (is_kind(link) or is_ours(link) or maker_of(link) in OBSERVERS):
            stranger = link
            break
    code = code_of(stranger)
    where = f" in {code.__code__.co_filename}" if code is not None else ""
    raise Displaced(f"{target.qualname} was already replaced by {name_of(stranger)}{where}; find out who does that")


def is_of_source(obj: Any, module: ModuleType) -> bool:
    """Whether this is a plain function that was compiled from the module's own file."""
    if type(obj) is not FunctionType or is_ours(obj):
        return False
    return obj.__code__.co_filename == getattr(module, "__file__", None)


def dress(new: Any, before: Any, patch_id: str) -> Any:
    """Give the replacement the original's kind and metadata, and the overlay's mark."""
    if not callable(new) and not isinstance(new, (property, staticmethod, classmethod)):
        raise TypeError(f"build() returned {type(new).__name__}, which is neither callable nor a property")
    if isinstance(before, property) and not isinstance(new, property):
        raise TypeError("build() must return a property for a property")
    for kind in (staticmethod, classmethod):
        if isinstance(before, kind) and not isinstance(new, kind):
            new = kind(new)
    inner, old = function_of(new), function_of(before)
    if isinstance(inner, FunctionType):
        if isinstance(old, FunctionType) and inner is not old:
            # The attributes of the engine's function, not the marks that other tools leave on their wrappers.
            bottom = innermost(old)
            functools.update_wrapper(inner, bottom if isinstance(bottom, FunctionType) else old)
            inner.__wrapped__ = old  # type: ignore[attr-defined]
        claim(inner, patch_id)
    return new


def aliases(engine: Engine, owner: Any, name: str, before: Any, after: Any) -> Iterator[Change]:
    """References to the original that others already took: ``from m import f``, ``g = Base.f`` in a subclass."""
    if before is NOTHING:
        return
    if isinstance(owner, ModuleType):
        for module in modules_of(engine):
            for key, value in list(vars(module).items()):
                if value is before and (module, key) != (owner, name):
                    yield Change(module, key, before, after, alias=True)
    elif isinstance(owner, type):
        for cls in (owner, *_subclasses(owner)):
            for key, value in list(vars(cls).items()):
                if value is before and (cls, key) != (owner, name):
                    yield Change(cls, key, before, after, alias=True)


def modules_of(engine: Engine) -> list[ModuleType]:
    """The modules of the engine that are imported now."""
    found = [(name, module) for name, module in list(sys.modules.items()) if isinstance(module, ModuleType)]
    return [module for name, module in found if name.partition(".")[0] == engine.name]


def _subclasses(cls: type) -> Iterable[type]:
    for sub in type.__subclasses__(cls):
        yield sub
        yield from _subclasses(sub)


def leftovers(modules: Iterable[ModuleType]) -> Iterator[tuple[Any, str, Any]]:
    """(owner, name, function) for each attribute that still leads to a replacement of the overlay.

    Looked at are the names of the modules, and of the classes that are defined in them.
    """
    owners: dict[int, Any] = {}
    for module in modules:
        owners[id(module)] = module
        for value in list(vars(module).values()):
            if isinstance(value, type) and getattr(value, "__module__", None) == module.__name__:
                owners[id(value)] = value
    for owner in owners.values():
        for name, value in list(vars(owner).items()):
            if isinstance(value, type) or not (is_kind(value) or callable(value)):
                continue
            yield from ((owner, name, link) for link in chain(value) if is_ours(link))


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
    if change.before is not NOTHING and splice(holder, change.after, change.before):
        return None
    return f"{name_of(now)} was put over it and still calls it; undo that first"
