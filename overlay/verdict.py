"""(patch, engine, settings) -> Verdict: whether a patch goes into the engine that is installed, and why or why not.

Pure: reads source files, imports nothing of the engine and changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from packaging.version import Version

from engine_overlay import fingerprint
from engine_overlay.catalog import BUILT_IN, Catalog, Entry
from engine_overlay.engines import Engine
from engine_overlay.log import one_line
from engine_overlay.record import ABSENT, Patch, Target
from engine_overlay.settings import PROFILES, Settings, suggest

APPLY, NATIVE, UNTESTED, DRIFTED = "apply", "native", "untested", "drifted"
MISSING, DISABLED, CONFLICT, FAILED = "missing", "disabled", "conflict", "failed"

REFUSALS = frozenset({UNTESTED, DRIFTED, MISSING, CONFLICT, FAILED})
"""Codes that mean: the fault may be there and the patch stays out. ``native`` and ``disabled`` are no refusals."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """``code`` is one of the words above; ``reason`` one line; ``detail`` what decided it, for reports."""

    code: str
    reason: str
    detail: str = ""

    @property
    def refused(self) -> bool:
        return self.code in REFUSALS


def decide(catalog: Catalog, engine: Engine, settings: Settings) -> dict[str, Verdict]:
    """A verdict for every patch of the catalog, in its order."""
    verdicts = {i: _alone(entry.patch, engine, settings) for i, entry in catalog.entries.items()}
    _settle_conflicts(catalog, verdicts, settings)
    _settle_shared_targets(catalog, verdicts)
    while _settle_needs(catalog, verdicts, settings) or _settle_groups(catalog, verdicts, settings):
        pass
    return verdicts


def unknown_ids(catalog: Catalog, settings: Settings) -> list[str]:
    """A line for each id in the settings that no patch has: the nearest known one, or the tombstone's reason."""
    lines = []
    for variable, ids in (
        ("ENGINE_OVERLAY_DISABLE", settings.disable),
        ("ENGINE_OVERLAY_ENABLE", settings.enable),
        ("ENGINE_OVERLAY_ONLY", settings.only),
    ):
        for name in ids:
            if name in catalog.entries:
                continue
            stone = catalog.tombstones.get(name)
            if stone is not None:
                fixed = ", ".join(f"{engine} {version}" for engine, version in stone.fixed_in.items())
                lines.append(f"{variable}: {name} was retired: {stone.reason} (fixed in {fixed}); remove it there")
            else:
                guess = suggest(name, catalog.entries) or '; "engine-overlay plan" lists the known ones'
                lines.append(f"{variable}: there is no patch {name}{guess}")
    return lines


def _alone(patch: Patch, engine: Engine, settings: Settings) -> Verdict:
    closed = patch.engines.get(engine.name)
    if closed is None:
        return Verdict(NATIVE, f"{engine.name} does not have this fault", "not affected")
    release = engine.release
    introduced, fixed = patch.introduced_in[engine.name], patch.fixed_in[engine.name]
    if release is not None and release < Version(introduced):
        return Verdict(NATIVE, f"it concerns {engine.name} {introduced} and later", "not affected")
    if release is not None and fixed is not None and release >= Version(fixed):
        if patch.superseded_by is not None:
            return Verdict(NATIVE, f"{patch.superseded_by} does this from {engine.name} {fixed} on", "not affected")
        return Verdict(NATIVE, f"fixed upstream in {engine.name} {fixed}", "fixed upstream")
    if patch.id in settings.disable:
        return Verdict(DISABLED, "named in ENGINE_OVERLAY_DISABLE")
    if settings.only and patch.id not in settings.only:
        return Verdict(DISABLED, "not named in ENGINE_OVERLAY_ONLY")
    if not patch.default and patch.id not in settings.named:
        ways = [f"ENGINE_OVERLAY_ENABLE={patch.id}"]
        ways += [f"ENGINE_OVERLAY_PROFILE={name}" for name, ids in PROFILES.items() if patch.id in ids]
        return Verdict(DISABLED, f"off by default ({patch.default_reason}); {' or '.join(ways)} adds it")
    inside = release is not None and Version(closed.first) <= release <= Version(closed.last)
    problem = _bodies(patch, engine)
    if inside:
        return problem or Verdict(APPLY, f"every body is known on {engine.label}", "in the closed range")
    where = f"{engine.label} is outside the tested {closed}"
    if settings.untested == "refuse":
        return Verdict(UNTESTED, f"{where}, and ENGINE_OVERLAY_UNTESTED=refuse")
    if problem is None:
        return Verdict(APPLY, f"{where}, but every body is known", "bodies match")
    if settings.untested == "apply" and problem.code == DRIFTED:
        return Verdict(APPLY, f"{where}, forced by ENGINE_OVERLAY_UNTESTED=apply: {problem.reason}", "forced")
    return Verdict(problem.code if problem.code == MISSING else UNTESTED, f"{where}, and {problem.reason}")


def _bodies(patch: Patch, engine: Engine) -> Verdict | None:
    """The first target or read whose body is not an accepted one, as a verdict; None when all are."""
    for target in (*patch.targets, *patch.reads):
        body, why = body_of(engine, target)
        if body in target.bodies:
            continue
        if body is None:
            return Verdict(MISSING, why)
        if body == ABSENT:
            return Verdict(MISSING, f"{target.qualname} is not defined in {engine.name}.{target.module}")
        return Verdict(DRIFTED, f"body of {target.qualname} is unknown ({body})")
    return None


def body_of(engine: Engine, target: Target) -> tuple[str | None, str]:
    """(fingerprint or ABSENT, "") of a target; (None, why) when its source cannot be read or its owner is not there."""
    path = engine.source(target.module)
    if path is None:
        return None, f"{engine.name}.{target.module} has no source file"
    try:
        tree = fingerprint.tree(path)
    except (OSError, SyntaxError, ValueError) as error:
        return None, f"the source of {engine.name}.{target.module} cannot be read ({one_line(error)})"
    node = fingerprint.find(tree, target.qualname)
    if node is not None:
        return fingerprint.of_node(node), ""
    owner = target.qualname.rpartition(".")[0]
    if owner and fingerprint.find(tree, owner) is None:
        return None, f"{owner} is not defined in {engine.name}.{target.module}"
    return ABSENT, ""


def _applying(verdicts: dict[str, Verdict]) -> list[str]:
    return [i for i, v in verdicts.items() if v.code == APPLY]


def _weaker(catalog: Catalog, settings: Settings, a: str, b: str) -> tuple[str, str]:
    """(the one that gives way, the one that stays): asked for by name stays, then built in, then the first id."""

    def rank(i: str) -> tuple[bool, bool, str]:
        return (i not in settings.named, catalog.entries[i].origin != BUILT_IN, i)

    stays, gives = sorted((a, b), key=rank)
    return gives, stays


def _settle_conflicts(catalog: Catalog, verdicts: dict[str, Verdict], settings: Settings) -> None:
    for i in _applying(verdicts):
        for other in catalog.entries[i].patch.conflicts:
            if verdicts[i].code == APPLY and other in verdicts and verdicts[other].code == APPLY:
                gives, stays = _weaker(catalog, settings, i, other)
                verdicts[gives] = Verdict(CONFLICT, f"conflicts with {stays}, which goes in; disable one of them")


def _settle_shared_targets(catalog: Catalog, verdicts: dict[str, Verdict]) -> None:
    owner: dict[str, str] = {}
    for i in stacked(catalog.entries[i] for i in _applying(verdicts)):
        entry = catalog.entries[i]
        for target in entry.patch.targets:
            below = owner.get(target.path)
            if below is not None and below not in (*entry.patch.requires, *entry.patch.after):
                verdicts[i] = Verdict(CONFLICT, f"replaces {target.qualname}, which {below} replaces too; disable one")
                break
        else:
            owner.update((target.path, i) for target in entry.patch.targets)


def _without(i: str, code: str, settings: Settings) -> str:
    """The code of a patch that cannot go in without another of ``code``: one that was switched off takes it along."""
    return DISABLED if code == DISABLED and i not in settings.named else CONFLICT


def _settle_needs(catalog: Catalog, verdicts: dict[str, Verdict], settings: Settings) -> bool:
    changed = False
    for i in _applying(verdicts):
        for need in catalog.entries[i].patch.requires:
            there = verdicts.get(need)
            if there is None:
                verdicts[i] = Verdict(CONFLICT, f"requires {need}, which is not installed")
            elif there.code not in (APPLY, NATIVE):
                code = _without(i, there.code, settings)
                verdicts[i] = Verdict(code, f"requires {need}, which is {there.code}: {there.reason}")
            else:
                continue
            changed = True
            break
    return changed


def _settle_groups(catalog: Catalog, verdicts: dict[str, Verdict], settings: Settings) -> bool:
    changed = False
    for i in _applying(verdicts):
        group = catalog.entries[i].patch.group
        if group is None:
            continue
        for other, entry in catalog.entries.items():
            v = verdicts[other]
            if entry.patch.group == group and (v.refused or v.code == DISABLED):
                code = _without(i, v.code, settings)
                verdicts[i] = Verdict(code, f"its group {group} goes in whole or not at all, and {other} is {v.code}")
                changed = True
                break
    return changed


def stacked(entries: Iterable[Entry]) -> list[str]:
    """Ids in an order in which each comes after those it requires, or wants beneath it."""
    by_id = {entry.patch.id: entry for entry in entries}
    order: list[str] = []

    def visit(i: str, seen: tuple[str, ...]) -> None:
        if i in order or i in seen or i not in by_id:
            return
        for need in (*by_id[i].patch.requires, *by_id[i].patch.after):
            visit(need, (*seen, i))
        order.append(i)

    for i in sorted(by_id, key=lambda i: (by_id[i].origin != BUILT_IN, i)):
        visit(i, ())
    return order
