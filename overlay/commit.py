"""Puts replacements in and takes them out: a whole group or nothing, aliases repaired, undo by identity.

Everything that is changed is kept in a journal as (owner, name, before, after); what is true is read back from
the live objects through it, never from a flag.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterable
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

from engine_overlay import reach, replace, verdict, wrappers
from engine_overlay.catalog import Catalog, Entry
from engine_overlay.engines import Engine
from engine_overlay.log import logger, one_line
from engine_overlay.record import Target
from engine_overlay.verdict import APPLY, CONFLICT, FAILED, Verdict


@dataclass(slots=True)
class Ledger:
    """The patches of one engine that are to go in, what was done for each, and what came of it.

    ``journal`` has what is in the engine's present functions and classes, ``former`` what stays in those of before a
    reload.
    """

    engine: Engine
    catalog: Catalog
    verdicts: dict[str, Verdict]
    journal: dict[str, list[replace.Change]] = field(default_factory=dict)
    former: dict[str, list[replace.Change]] = field(default_factory=dict)
    executed: dict[str, ModuleType] = field(default_factory=dict)
    undone: set[str] = field(default_factory=set)
    lock: threading.RLock = field(default_factory=threading.RLock)

    def entry(self, patch_id: str) -> Entry:
        return self.catalog.entries[patch_id]

    def ways(self) -> dict[str, reach.Way]:
        """What each patch that is to go in meets in this process."""
        place = reach.here(self.engine)
        return {i: self.entry(i).way(place) for i, v in self.verdicts.items() if v.code == APPLY}

    def wanted_modules(self) -> set[str]:
        """Full names of the modules that the patches to apply have targets in."""
        return {
            f"{self.engine.name}.{target.module}"
            for i, v in self.verdicts.items()
            if v.code == APPLY
            for target in self.entry(i).patch.targets
        }

    def module_executed(self, name: str, module: ModuleType) -> list[str]:
        """Note that ``module`` has run to its end and commit what became complete; returns the ids put in or failed.

        A module may be said to have run more than once (by loaders of other tools in a chain with ours) and may run
        again (a reload): which of them it is, is read from its live functions.
        """
        with self.lock:
            seen = self.executed.get(name)
            if seen is not None and seen is not module and sys.modules.get(name) is seen:
                # Somebody made a copy for himself; what the engine uses is the other one.
                return []
            self.executed[name] = module
            done: list[str] = self._let_go(name) if seen is not None else []
            return done + [i for i in self._put_in() if i not in done]

    def redo(self, patch_id: str) -> None:
        """Put an undone patch (and its group) in again. Raises KeyError for an id that is not to go in."""
        with self.lock:
            if self.verdicts[patch_id].code != APPLY:
                raise KeyError(f"{patch_id} is {self.verdicts[patch_id].code}: {self.verdicts[patch_id].reason}")
            self.undone -= set(self._unit(patch_id))
            self._put_in()

    def undo(self, patch_id: str) -> list[str]:
        """Take a patch out, with its group and those that require it. Returns a line for each thing left in place.

        Raises KeyError for an id that is not in.
        """
        with self.lock:
            if not self.journal.get(patch_id):
                raise KeyError(f"{patch_id} is not applied")
            out = self._with_dependents(patch_id)
            left = self._take_out([*out, *self._above(out)]) + self._take_out_former(out)
            self.undone |= set(out)
            self._put_in()
            return left + self._still_there(out)

    def undo_all(self) -> list[str]:
        """Take every patch out. Returns a line for each place where something of the overlay is still found."""
        with self.lock:
            applied = [i for i, changes in self.journal.items() if changes]
            self.undone |= set(applied)
            left = self._take_out(applied) + self._take_out_former(list(self.former))
            return left + self._still_there(list(self.verdicts))

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
            if waits:
                return "staged", f"waits for {', '.join(waits)} to be imported"
            others = [*self._unit(patch_id), *self._needs(self._unit(patch_id))]
            held = [i for i in others if i != patch_id and not self.journal.get(i) and self.verdicts[i].code == APPLY]
            return "staged", f"waits for {', '.join(held)} to go in" if held else ""
        observed = ""
        for change in changes:
            now = change.now()
            over = wrappers.over(now, change.after)
            if over is None:
                if now is change.before:
                    return "undone", f"{wrappers.name_of(change.before)} was put back from outside"
                return "displaced", f"{wrappers.name_of(now)} replaced {wrappers.name_of(change.after)}"
            makers = {wrappers.maker_of(link) for link in over}
            if not makers <= wrappers.OBSERVERS:
                return "displaced", f"{wrappers.name_of(over[0])} was put over {wrappers.name_of(change.after)}"
            if makers and not observed:
                observed = f"under a wrapper of {', '.join(sorted(map(str, makers)))}, which passes calls on"
        return "applied", observed

    # -- what happened to it meanwhile

    def _let_go(self, name: str) -> list[str]:
        """After a reload of the module: take out what lost a target by it, so that it can go in whole again.

        Replacements that stay in classes and names of before the reload are kept apart, for undo. Returns the ids of
        patches that cannot come out, because somebody else holds them in place elsewhere.
        """
        lost: list[str] = []
        for i, changes in list(self.journal.items()):
            if changes and any(self._full(t) == name and self._is_lost(i, t) for t in self.entry(i).patch.targets):
                lost += [other for other in self._with_dependents(i) if other not in lost]
        for i in lost:
            live = [self._place(t)[:2] for t in self.entry(i).patch.targets if not self._is_lost(i, t)]
            changes = self.journal.get(i, [])
            # An alias belongs to the target that has the same replacement.
            kept = {id(c.after) for c in changes if any(c.owner is owner and c.name == name for owner, name in live)}
            self.journal[i] = [c for c in changes if id(c.after) in kept]
            gone = [c for c in changes if id(c.after) not in kept]
            self.former.setdefault(i, []).extend(c for c in gone if wrappers.is_in(c.now(), c.after))
        held = self._take_out([*lost, *self._above(lost)])
        stuck = sorted({line.partition(":")[0] for line in held})
        for i in stuck:
            line = next(line for line in held if line.startswith(f"{i}:"))
            self.verdicts[i] = Verdict(FAILED, f"{name} was reloaded, and the patch cannot follow: {line}")
        return stuck

    def _place(self, target: Target) -> tuple[Any, str, Any]:
        """(owner, name, raw attribute) of a target in the module that is live now. Raises AttributeError."""
        owner, name = replace.resolve(self.executed[self._full(target)], target.qualname)
        return owner, name, vars(owner).get(name, wrappers.NOTHING)

    def _is_lost(self, patch_id: str, target: Target) -> bool:
        """Whether the target is a new object of a module that ran again, so that the patch is not in it."""
        try:
            owner, name, now = self._place(target)
        except AttributeError:
            return True
        mine = [c for c in self.journal[patch_id] if c.owner is owner and c.name == name]
        if not mine:
            return True
        # A name of the module itself keeps its owner in a reload, and holds a new function of the same source.
        if any(wrappers.is_in(now, c.after) or now is c.before for c in mine):
            return False
        return any(replace.is_of_source(link, self.executed[self._full(target)]) for link in wrappers.chain(now))

    def _take_out_former(self, ids: list[str]) -> list[str]:
        left = []
        for i in ids:
            changes = self.former.pop(i, [])
            lines = [line for change in reversed(changes) if (line := replace.take_out(change))]
            left += [f"{i}: {line}" for line in lines]
            if lines:
                self.former[i] = changes
        return left

    def _still_there(self, ids: list[str]) -> list[str]:
        """A line for each further attribute of the engine that still leads to a replacement of one of these patches."""
        # What could not be taken out is in the books still, and was told with its reason.
        told = {(id(c.owner), c.name) for i in ids for c in (*self.journal.get(i, ()), *self.former.get(i, ()))}
        found = replace.leftovers([*replace.modules_of(self.engine), *self.executed.values()])
        return [
            f"{i}: {getattr(owner, '__name__', owner)}.{name} still leads to {wrappers.name_of(function)}; "
            "restart the process to be rid of it, and please report it"
            for owner, name, function in found
            if (i := getattr(function, wrappers.MARK, "")) in ids and (id(owner), name) not in told
        ]

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

    def _take_out(self, ids: list[str]) -> list[str]:
        """Undo the changes of these patches, the topmost first; a line for each that somebody else keeps in place."""
        left: list[str] = []
        for i in reversed(verdict.stacked(self.entry(i) for i in ids)):
            lines = [line for change in reversed(self.journal.get(i, [])) if (line := replace.take_out(change))]
            left += [f"{i}: {line}" for line in lines]
            if not lines:
                self.journal[i] = []
        return left

    def _above(self, out: list[str]) -> list[str]:
        """Applied patches that lie over those of ``out`` without requiring them; they are put back afterwards."""
        found: list[str] = []
        for i in (below := list(out)):
            for other, changes in self.journal.items():
                if changes and other not in below and i in self.entry(other).patch.after:
                    below += self._unit(other)
                    found += self._unit(other)
        return found

    def _put_in(self) -> list[str]:
        """Put in every unit that can go in now; the ids of those that were put in or failed."""
        done: list[str] = []
        while ready := self._next_unit():
            # What was there first and lies over these goes in again after them.
            self._take_out(self._above(ready))
            done += [i for i in ready if i not in done]
            self._commit(ready)
        return done

    def _next_unit(self) -> list[str] | None:
        for i in self.verdicts:
            unit = self._unit(i)
            if not self._can_go_in(unit):
                continue
            # One that lies over another goes in after it, unless that one has to wait for modules of its own.
            after = {n for member in unit for n in self.entry(member).patch.after if n in self.verdicts} - set(unit)
            if not any(self._can_go_in(self._unit(n)) for n in after):
                return unit
        return None

    def _can_go_in(self, unit: list[str]) -> bool:
        """Whether a unit that is not in has all it needs: its modules have run, and what it requires is in."""
        if not unit or any(self.verdicts[i].code != APPLY or self.journal.get(i) or i in self.undone for i in unit):
            return False
        targets = [t for i in unit for t in self.entry(i).patch.targets]
        if any(self._full(t) not in self.executed for t in targets):
            return False
        return all(self.journal.get(n) or self.verdicts[n].code != APPLY for n in self._needs(unit))

    def _needs(self, unit: list[str]) -> list[str]:
        """The patches that a unit requires."""
        return sorted({n for i in unit for n in self.entry(i).patch.requires} - set(unit))

    def _commit(self, unit: list[str]) -> None:
        done: list[replace.Change] = []
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
            code = CONFLICT if isinstance(error, replace.Displaced) else FAILED
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

    def _stage(self, entry: Entry) -> list[replace.Change]:
        places: dict[str, tuple[Any, str, Any]] = {}
        for target in entry.patch.targets:
            owner, name, before = self._place(target)
            module = self.executed[self._full(target)]
            replace.check_pristine(self.engine, target, module, before, entry.patch.id)
            places[target.path] = (owner, name, before)
        originals = {path: wrappers.callable_of(owner, before) for path, (owner, _, before) in places.items()}
        built = dict(entry.build(self.engine, originals))
        if built.keys() != places.keys():
            odd = sorted(built.keys() ^ places.keys())
            raise TypeError(f"build() must return exactly its targets; differs in {', '.join(odd)}")
        changes = []
        for path, (owner, name, before) in places.items():
            after = replace.dress(built[path], before, entry.patch.id)
            changes.append(replace.Change(owner, name, before, after, alias=False))
            changes += replace.aliases(self.engine, owner, name, before, after)
        return changes


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
                v.code,
                i,
                ledger.engine.label,
                v.reason,
                i,
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
