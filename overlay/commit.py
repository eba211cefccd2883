"""Puts replacements in and takes them out: a whole group or nothing, aliases repaired, undo by identity.

Everything that is changed is kept in a journal as (owner, name, before, after); what is true is read back from
the live objects through it, never from a flag.
"""

from __future__ import annotations

import functools
import sys
import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from types import FunctionType, ModuleType
from typing import Any

from engine_overlay import fingerprint, verdict
from engine_overlay.catalog import Catalog, Entry
from engine_overlay.engines import Engine
from engine_overlay.log import logger, one_line
from engine_overlay.record import Target
from engine_overlay.verdict import APPLY, CONFLICT, FAILED, Verdict

MARK = "__engine_overlay__"
"""Attribute of every replacement: the id of its patch."""

_NOTHING = object()


class Displaced(RuntimeError):
    """The target is not what the engine's source says: somebody else replaced it first."""


@dataclass(slots=True)
class Change:
    """One replaced attribute. ``before`` is the raw attribute of the owner's own namespace, or ``_NOTHING``."""

    owner: Any
    name: str
    before: Any
    after: Any
    alias: bool

    def now(self) -> Any:
        return vars(self.owner).get(self.name, _NOTHING)

    def put(self) -> None:
        setattr(self.owner, self.name, self.after)

    def take_out(self) -> None:
        if self.before is _NOTHING:
            delattr(self.owner, self.name)
        else:
            setattr(self.owner, self.name, self.before)


@dataclass(slots=True)
class Ledger:
    """The patches of one engine that are to go in, what was done for each, and what came of it."""

    engine: Engine
    catalog: Catalog
    verdicts: dict[str, Verdict]
    journal: dict[str, list[Change]] = field(default_factory=dict)
    executed: dict[str, ModuleType] = field(default_factory=dict)
    undone: set[str] = field(default_factory=set)
    lock: threading.RLock = field(default_factory=threading.RLock)

    def entry(self, patch_id: str) -> Entry:
        return self.catalog.entries[patch_id]

    def wanted_modules(self) -> set[str]:
        """Full names of the modules that the patches to apply have targets in."""
        return {
            f"{self.engine.name}.{target.module}"
            for i, v in self.verdicts.items()
            if v.code == APPLY
            for target in self.entry(i).patch.targets
        }

    def module_executed(self, name: str, module: ModuleType) -> list[str]:
        """Note that ``module`` has run to its end and commit what became complete; returns the ids put in or failed."""
        with self.lock:
            again = name in self.executed
            self.executed[name] = module
            if again:
                # A reload made new classes: what was put into the old ones is gone with them.
                for i, changes in self.journal.items():
                    if any(self._full(t) == name for t in self.entry(i).patch.targets):
                        changes.clear()
            done: list[str] = []
            while ready := self._next_unit():
                done += ready
                self._commit(ready)
            return done

    def redo(self, patch_id: str) -> None:
        """Put an undone patch (and its group) in again. Raises KeyError for an id that is not to go in."""
        with self.lock:
            if self.verdicts[patch_id].code != APPLY:
                raise KeyError(f"{patch_id} is {self.verdicts[patch_id].code}: {self.verdicts[patch_id].reason}")
            self.undone -= set(self._unit(patch_id))
            while ready := self._next_unit():
                self._commit(ready)

    def undo(self, patch_id: str) -> list[str]:
        """Take a patch out, with its group and those that require it. Returns a line for each thing left in place.

        Raises KeyError for an id that is not in.
        """
        with self.lock:
            if not self.journal.get(patch_id):
                raise KeyError(f"{patch_id} is not applied")
            out = self._with_dependents(patch_id)
            left: list[str] = []
            for i in reversed(verdict.stacked(self.entry(i) for i in out)):
                for change in reversed(self.journal.get(i, [])):
                    line = _take_out(change)
                    if line:
                        left.append(f"{i}: {line}")
                if not any(line.startswith(f"{i}: ") for line in left):
                    self.journal[i] = []
                self.undone.add(i)
            return left

    def undo_all(self) -> list[str]:
        left: list[str] = []
        for i in [i for i, changes in self.journal.items() if changes]:
            if i not in self.undone:
                left += self.undo(i)
        return left

    def state(self, patch_id: str) -> tuple[str, str]:
        """(staged | applied | displaced | undone | "", why), read from the live objects."""
        if self.verdicts[patch_id].code != APPLY:
            return "", ""
        changes = [c for c in self.journal.get(patch_id, []) if not c.alias]
        if not changes:
            if patch_id in self.undone:
                return "undone", ""
            waits = sorted({self._full(t) for t in self.entry(patch_id).patch.targets} - self.executed.keys())
            main = getattr(getattr(sys.modules.get("__main__"), "__spec__", None), "name", None)
            if main in waits:
                return "staged", f"{main} runs as __main__ and cannot be reached there"
            return "staged", f"waits for {', '.join(waits)} to be imported" if waits else ""
        for change in changes:
            now = change.now()
            if now is change.after or _stacked_on(now, change.after):
                continue
            holder = _holder(now, change.after)
            if holder is not None:
                return "displaced", f"{_name(now)} was put over {_name(change.after)}"
            if now is change.before:
                return "undone", f"{_name(change.before)} was put back from outside"
            return "displaced", f"{_name(now)} replaced {_name(change.after)}"
        return "applied", ""

    # -- how a unit goes in

    def _full(self, target: Target) -> str:
        return f"{self.engine.name}.{target.module}"

    def _unit(self, patch_id: str) -> list[str]:
        group = self.entry(patch_id).patch.group
        if group is None:
            return [patch_id]
        return [i for i, v in self.verdicts.items() if v.code == APPLY and self.entry(i).patch.group == group]

    def _with_dependents(self, patch_id: str) -> list[str]:
        out = list(self._unit(patch_id))
        for i in out:
            for other in self.journal:
                if i in self.entry(other).patch.requires and other not in out:
                    out += [o for o in self._unit(other) if o not in out]
        return out

    def _next_unit(self) -> list[str] | None:
        for i, v in self.verdicts.items():
            if v.code != APPLY or self.journal.get(i) or i in self.undone:
                continue
            unit = self._unit(i)
            targets = [t for member in unit for t in self.entry(member).patch.targets]
            if any(self._full(t) not in self.executed for t in targets):
                continue
            needs = {n for member in unit for n in self.entry(member).patch.requires} - set(unit)
            if all(self.journal.get(n) or self.verdicts[n].code != APPLY for n in needs):
                return unit
        return None

    def _commit(self, unit: list[str]) -> None:
        done: list[Change] = []
        current = unit[0]
        try:
            for current in verdict.stacked(self.entry(i) for i in unit):
                changes = self._stage(self.entry(current))
                for change in changes:
                    change.put()
                    done.append(change)
                    if change.now() is not change.after:
                        raise RuntimeError(f"{change.name} of {change.owner!r} does not keep a replacement")
                self.journal[current] = changes
        except Exception as error:
            for change in reversed(done):
                change.take_out()
            code = CONFLICT if isinstance(error, Displaced) else FAILED
            for i in unit:
                self.journal.pop(i, None)
                why = one_line(error) if code == FAILED else str(error)
                reason = why if i == current else f"its group goes in whole or not at all, and {current} {code}: {why}"
                self.verdicts[i] = Verdict(code, reason)
            self._refuse_dependents(unit)

    def _refuse_dependents(self, unit: list[str]) -> None:
        for i, v in list(self.verdicts.items()):
            need = next((n for n in self.entry(i).patch.requires if n in unit), None)
            if v.code == APPLY and need is not None and not self.journal.get(i):
                self.verdicts[i] = Verdict(CONFLICT, f"requires {need}, which {self.verdicts[need].code}")
                self._refuse_dependents([i])

    def _stage(self, entry: Entry) -> list[Change]:
        places: dict[str, tuple[Any, str, Any]] = {}
        for target in entry.patch.targets:
            module = self.executed[self._full(target)]
            owner, name = _resolve(module, target.qualname)
            before = vars(owner).get(name, _NOTHING)
            _check_pristine(self.engine, target, module, before)
            places[target.path] = (owner, name, before)
        originals = {path: None if b is _NOTHING else b for path, (_, _, b) in places.items()}
        built = dict(entry.build(self.engine, originals))
        if built.keys() != places.keys():
            odd = sorted(built.keys() ^ places.keys())
            raise TypeError(f"build() must return exactly its targets; differs in {', '.join(odd)}")
        changes = []
        for path, (owner, name, before) in places.items():
            after = _dress(built[path], before, entry.patch.id)
            changes.append(Change(owner, name, before, after, alias=False))
            changes += _aliases(self.engine, owner, name, before, after)
        return changes


def _resolve(module: ModuleType, qualname: str) -> tuple[Any, str]:
    owner: Any = module
    *path, name = qualname.split(".")
    for part in path:
        if part not in vars(owner):
            raise AttributeError(f"{part} is not defined in {getattr(owner, '__name__', owner)!s}")
        owner = vars(owner)[part]
    return owner, name


def _check_pristine(engine: Engine, target: Target, module: ModuleType, raw: Any) -> None:
    """Raise Displaced when the live attribute is not the function that stands in the module's source."""
    function = _function(raw)
    if raw is _NOTHING or hasattr(function, MARK):
        return
    path = engine.source(target.module)
    node = fingerprint.find(fingerprint.tree(path), target.qualname) if path else None
    if not hasattr(node, "decorator_list") or (node.decorator_list and not isinstance(raw, (property, staticmethod, classmethod))):
        return
    code = getattr(function, "__code__", None)
    if not isinstance(function, FunctionType) or code is None or code.co_filename != getattr(module, "__file__", None):
        where = f" in {code.co_filename}" if code is not None else ""
        raise Displaced(f"{target.qualname} was already replaced by {_name(raw)}{where}; find out who does that")


def _function(raw: Any) -> Any:
    if isinstance(raw, (staticmethod, classmethod)):
        return raw.__func__
    if isinstance(raw, property):
        return raw.fget
    return raw


def _dress(new: Any, before: Any, patch_id: str) -> Any:
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
    return new


def _aliases(engine: Engine, owner: Any, name: str, before: Any, after: Any) -> Iterator[Change]:
    """References to the original that others already took: ``from m import f``, ``g = Base.f`` in a subclass."""
    if before is _NOTHING:
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


def _stacked_on(now: Any, mine: Any) -> bool:
    """Whether another patch of the overlay stands on mine; that is order, not displacement."""
    if not hasattr(_function(now), MARK):
        return False
    return _holder(now, mine) is not None


def _holder(now: Any, mine: Any) -> Any:
    """The wrapper that holds ``mine`` in the chain of ``__wrapped__`` that starts at ``now``, or None."""
    obj, target = now, _function(mine)
    for _ in range(64):
        inner = _wrapped(obj)
        if inner is None or obj is _NOTHING:
            return None
        if inner is mine or inner is target:
            return obj
        obj = inner
    return None


def _take_out(change: Change) -> str | None:
    """Undo one change by identity; a line when somebody else's wrapper keeps it in."""
    now = change.now()
    if now is change.after:
        change.take_out()
        return None
    if now is change.before or now is _NOTHING:
        return None
    holder = _holder(now, change.after)
    if holder is None:
        return None if change.alias else f"{_name(now)} replaced it meanwhile and stays"
    if change.before is not _NOTHING and _splice(holder, _function(change.after), _function(change.before)):
        return None
    return f"{_name(now)} was put over it and still calls it; undo that first"


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


def _name(obj: Any) -> str:
    if obj is _NOTHING:
        return "nothing"
    function = _function(obj)
    module = getattr(function, "__module__", None)
    name = getattr(function, "__qualname__", None) or type(obj).__name__
    mark = getattr(function, MARK, None)
    return f"{module}.{name}" + (f" (patch {mark})" if mark else "")


def log_outcome(ledger: Ledger, ids: Iterable[str]) -> None:
    """One line for each patch that has just gone in or failed."""
    for i in ids:
        v = ledger.verdicts[i]
        if v.code == APPLY:
            logger.debug("applied %s on %s", i, ledger.engine.label)
        else:
            logger.warning(
                '%s: refused %s on %s: %s; the engine runs without it, run "engine-overlay doctor" '
                "or set ENGINE_OVERLAY_DISABLE=%s",
                v.code, i, ledger.engine.label, v.reason, i,
            )


def _ledger_of(patch_id: str) -> Ledger:
    from engine_overlay import importer

    for ledger in importer.overlay.ledgers.values() if importer.overlay else ():
        if patch_id in ledger.verdicts and ledger.verdicts[patch_id].code == APPLY:
            return ledger
    raise KeyError(f"{patch_id} is not to go into any engine of this process")


def undo(patch_id: str) -> list[str]:
    """Take a patch out of this process; see :meth:`Ledger.undo`."""
    return _ledger_of(patch_id).undo(patch_id)


def undo_all() -> list[str]:
    """Take every patch out of this process; returns a line for each thing that somebody else keeps in place."""
    from engine_overlay import importer

    ledgers = importer.overlay.ledgers.values() if importer.overlay else ()
    return [line for ledger in ledgers for line in ledger.undo_all()]


def redo(patch_id: str) -> None:
    """Put an undone patch in again; see :meth:`Ledger.redo`."""
    _ledger_of(patch_id).redo(patch_id)


def state(patch_id: str) -> str:
    """staged, applied, displaced or undone, read from the live objects."""
    return _ledger_of(patch_id).state(patch_id)[0]
