"""All known patches: the built-in ones, and third-party ones from the entry point group ``engine_overlay.patches``.

An entry point names a module that has the same three parts as a built-in patch: ``PATCH``, ``probe`` and ``build``.
One that cannot be loaded is a problem line; it never stops the others.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import pkgutil
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

from engine_overlay import patches, reach
from engine_overlay.engines import Engine
from engine_overlay.log import one_line
from engine_overlay.record import Finding, Patch, Tombstone

GROUP = "engine_overlay.patches"
BUILT_IN = "built in"


@dataclass(frozen=True, slots=True)
class Entry:
    """A patch with its two functions; ``origin`` is :data:`BUILT_IN` or ``distribution version``."""

    patch: Patch
    probe: Callable[[Engine], Finding]
    build: Callable[[Engine, Mapping[str, Any]], Mapping[str, Any]]
    title: str
    description: str
    origin: str
    area: str

    def way(self, place: reach.Place) -> reach.Way:
        """What this patch meets in a process or server."""
        return place.of(self.patch.scope, built_in=self.origin == BUILT_IN)


@dataclass(slots=True)
class Catalog:
    """``entries`` by id, in the order they were found; ``problems`` are lines about those that could not be taken."""

    entries: dict[str, Entry] = field(default_factory=dict)
    tombstones: dict[str, Tombstone] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)


def load(*, third_party: bool = True) -> Catalog:
    """Load every known patch. Never raises for a bad one."""
    catalog = Catalog()
    for name in built_in_modules():
        _add(catalog, name.rpartition(".")[2], BUILT_IN, lambda name=name: importlib.import_module(name))
    from engine_overlay.patches.tombstones import TOMBSTONES

    catalog.tombstones = {stone.id: stone for stone in TOMBSTONES}
    if third_party:
        for point in _entry_points(catalog):
            dist = point.dist
            origin = f"{dist.name} {dist.version}" if dist is not None else point.value
            _add(catalog, point.name, origin, point.load)
    return catalog


def built_in_modules() -> list[str]:
    """Full names of the built-in patch modules: ``engine_overlay.patches.<area>.<id>``."""
    names = []
    for area in pkgutil.iter_modules(patches.__path__, patches.__name__ + "."):
        if area.ispkg:
            package = importlib.import_module(area.name)
            names += [m.name for m in pkgutil.iter_modules(package.__path__, area.name + ".") if not m.ispkg]
    return sorted(names)


def entry_of(module: ModuleType, origin: str) -> Entry:
    """The entry of a patch module. Raises AttributeError or TypeError that says which part is wrong."""
    record = getattr(module, "PATCH", None)
    if not isinstance(record, Patch):
        raise TypeError(f"{module.__name__}.PATCH is {type(record).__name__}, not engine_overlay.record.Patch")
    for part in ("probe", "build"):
        if not callable(getattr(module, part, None)):
            raise TypeError(f"{module.__name__}.{part} is missing or not callable")
    doc = (module.__doc__ or "").strip()
    if not doc:
        raise TypeError(f"{module.__name__} has no docstring; its first line is the title of the patch")
    area = module.__name__.split(".")[-2] if origin == BUILT_IN else "third party"
    return Entry(record, module.probe, module.build, doc.splitlines()[0].rstrip("."), doc, origin, area)


def _entry_points(catalog: Catalog) -> Iterable[importlib.metadata.EntryPoint]:
    try:
        return sorted(importlib.metadata.entry_points(group=GROUP), key=lambda p: p.name)
    except Exception as error:
        catalog.problems.append(f"third-party patches: entry points cannot be read ({one_line(error)}); none is used")
        return ()


def _add(catalog: Catalog, name: str, origin: str, get: Callable[[], ModuleType]) -> None:
    whose = "" if origin == BUILT_IN else f" of {origin}"
    try:
        entry = entry_of(get(), origin)
    except Exception as error:
        catalog.problems.append(
            f"patch {name}{whose} cannot be loaded ({one_line(error)}); it is left out, mend or uninstall it"
        )
        return
    taken = catalog.entries.get(entry.patch.id)
    if taken is not None:
        catalog.problems.append(
            f"patch {entry.patch.id}{whose} has the id of one that is {taken.origin}; it is left out, rename it"
        )
        return
    catalog.entries[entry.patch.id] = entry
