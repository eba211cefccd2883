"""Sees an engine's modules finish executing, before anyone else can take a reference from them.

``install`` puts one finder in front of ``sys.meta_path``. The overlay decides once per engine, just before the
engine's package runs, and wraps the loaders of the modules that hold targets; everything else passes through.
"""

from __future__ import annotations

import importlib.machinery
import sys
import threading
from types import ModuleType
from typing import Any

from engine_overlay import catalog, commit, engines, log, reach, settings, status, verdict
from engine_overlay.log import logger, one_line
from engine_overlay.record import ENGINES

WAYS = ("startup", "plugin", "launcher", "api")


class Refused(ImportError):
    """ENGINE_OVERLAY=strict and a patch that is not disabled cannot go in: the engine must not start."""


class Overlay:
    """The overlay in this process: one for its whole life."""

    def __init__(self, way: str, wanted: settings.Settings) -> None:
        self.way = way
        self.settings = wanted
        self.ledgers: dict[str, commit.Ledger] = {}
        self.problems: list[str] = []
        self.strict_error: str | None = None
        self._failed: set[str] = set()
        self._wanted: dict[str, set[str]] = {}
        self._deciding = False
        self._lock = threading.RLock()

    def ledger(self, engine_name: str) -> commit.Ledger | None:
        """The ledger of an engine, deciding on first use; None while deciding, or when deciding failed."""
        ledger = self.ledgers.get(engine_name)
        if ledger is not None or engine_name in self._failed:
            return ledger
        with self._lock:
            if self._deciding:
                return None
            if engine_name in self.ledgers or engine_name in self._failed:
                return self.ledgers.get(engine_name)
            self._deciding = True
            try:
                self._decide(engine_name)
            except Exception as error:
                self._failed.add(engine_name)
                self._problem(
                    f"{engine_name}: nothing is patched, deciding failed ({one_line(error)}); please report it"
                )
            finally:
                self._deciding = False
        ledger = self.ledgers.get(engine_name)
        if ledger is not None:
            self._catch_up(ledger)
        return ledger

    def wants(self, fullname: str) -> bool:
        return fullname in self._wanted.get(fullname.partition(".")[0], ())

    def executed(self, fullname: str, module: ModuleType) -> None:
        """Called right after ``module`` has run. Raises only :class:`Refused`, in strict mode."""
        ledger = self.ledgers.get(fullname.partition(".")[0])
        if ledger is None:
            return
        try:
            done = ledger.module_executed(fullname, module)
            commit.log_outcome(ledger, done)
            if done:
                self._announce_when_complete(ledger)
                status.write(self)
        except Exception as error:
            self._problem(f"{fullname}: patching failed ({one_line(error)}); the engine runs on, please report it")
            return
        failed = [i for i in done if ledger.verdicts[i].refused]
        if failed and self.settings.mode == "strict":
            self._refuse(ledger, failed)

    def check_strict(self) -> None:
        """Raise what strict mode found; called where an exception stops the engine's import."""
        if self.strict_error is not None:
            raise Refused(self.strict_error)

    def _decide(self, name: str) -> None:
        engine = engines.locate(name)
        if engine is None:
            # Not an engine: a folder of that name without a package, or a half-installed one.
            self._failed.add(name)
            self._problem(f"{name}: no package of it was found on sys.path; nothing is patched")
            return
        known = catalog.load()
        verdicts = verdict.decide(known, engine, self.settings)
        ledger = commit.Ledger(engine, known, verdicts)
        self._wanted[name] = ledger.wanted_modules()
        self.ledgers[name] = ledger
        for line in (*known.problems, *verdict.unknown_ids(known, self.settings)):
            self._problem(line)
        if engine.version is None:
            self._problem(f"{name}: {engine.root.name} does not say its version; only known bodies are patched")
        refused = [i for i, v in verdicts.items() if v.refused]
        for i in refused:
            self._say_refused(ledger, i)
        ways = ledger.ways()
        logger.info("%s: %s", engine.label, reach.line(ways.items()))
        status.write(self)
        bypassed = [i for i, way in ways.items() if way.word == reach.BYPASSED]
        if (refused or bypassed) and self.settings.mode == "strict":
            self._refuse(ledger, [*refused, *bypassed])

    def _say_refused(self, ledger: commit.Ledger, i: str) -> None:
        v = ledger.verdicts[i]
        say = logger.error if i in self.settings.named else logger.warning
        say(
            'refused %s on %s: %s: %s; the engine runs without it, run "engine-overlay doctor" '
            "or set ENGINE_OVERLAY_DISABLE=%s",
            i,
            ledger.engine.label,
            v.code,
            v.reason,
            i,
        )

    def _refuse(self, ledger: commit.Ledger, ids: list[str]) -> None:
        first = ledger.verdicts[ids[0]]
        more = f" (and {len(ids) - 1} more)" if len(ids) > 1 else ""
        code, reason, step = first.code, first.reason, "set ENGINE_OVERLAY=on"
        if first.code == verdict.APPLY:
            way = ledger.ways()[ids[0]]
            code, reason, step = reach.OUT_OF_PATH, way.reason, f"{way.step}, {step}"
        self.strict_error = (
            f"engine-overlay: ENGINE_OVERLAY=strict and {ids[0]} is refused on {ledger.engine.label}: "
            f"{code}: {reason}{more}; {step}, or name it in ENGINE_OVERLAY_DISABLE"
        )

    def _catch_up(self, ledger: commit.Ledger) -> None:
        """Modules that were imported before the overlay came are patched in place."""
        for name in sorted(self._wanted[ledger.engine.name]):
            module = sys.modules.get(name)
            spec = getattr(module, "__spec__", None)
            if module is not None and name not in ledger.executed and not getattr(spec, "_initializing", False):
                self.executed(name, module)

    def _announce_when_complete(self, ledger: commit.Ledger) -> None:
        ways = {i: way for i, way in ledger.ways().items() if not way.out}
        if ways and all(ledger.journal.get(i) for i in ways):
            # In a program without an API server nobody may ever ask for them.
            why = next((f" ({way.reason})" for way in ways.values() if way.word == reach.CALLED), "")
            logger.info("%s: active: %s%s", ledger.engine.label, ", ".join(ways), why)

    def _problem(self, line: str) -> None:
        if line not in self.problems:
            self.problems.append(line)
            logger.error("%s", line)


class Finder:
    """Meta-path finder in front of all others; answers only for modules that hold targets."""

    __engine_overlay__ = True

    def __init__(self, overlay: Overlay) -> None:
        self.overlay = overlay

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> importlib.machinery.ModuleSpec | None:
        # Called under the global import lock: nothing may be imported or decided here.
        if fullname in ENGINES:
            kind = Door if fullname not in self.overlay.ledgers else None
        else:
            kind = Loader if self.overlay.wants(fullname) else None
        if kind is None:
            return None
        spec = self._others(fullname, path, target)
        if spec is not None and spec.has_location and hasattr(spec.loader, "exec_module"):
            # Other tools' finders ask all finders anew, this one too, and then our loader is within theirs. There it
            # stays, innermost: what they put over a module's functions comes over what we put in.
            if not _holds_ours(spec.loader):
                spec.loader = kind(spec.loader, self.overlay)
        return spec

    def _others(self, fullname: str, path: Any, target: Any) -> importlib.machinery.ModuleSpec | None:
        for finder in list(sys.meta_path):
            if finder is self:
                continue
            find = getattr(finder, "find_spec", None)
            spec = find(fullname, path, target) if find is not None else None
            if spec is not None:
                return spec
        return None


def _holds_ours(loader: Any) -> bool:
    """Whether a loader of ours is in a chain of loaders, as far as the others show what they hold.

    Where one hides it, the module is said to have run twice, which the ledger sees through.
    """
    for _ in range(16):
        if issubclass(type(loader), Loader):
            return True
        held = (getattr(loader, name, None) for name in ("__wrapped__", "loader", "_loader"))
        loader = next((inner for inner in held if inner is not None and inner is not loader), None)
        if loader is None:
            break
    return False


class Loader:
    """The module's own loader, with one step after ``exec_module``; the module never sees it."""

    def __init__(self, loader: Any, overlay: Overlay) -> None:
        self._loader = loader
        self._overlay = overlay

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self._own(module).exec_module(module)
        self._overlay.executed(module.__name__, module)
        self._overlay.check_strict()

    def _own(self, module: ModuleType) -> Any:
        module.__loader__ = self._loader
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        return self._loader

    def __getattr__(self, name: str) -> Any:
        # Dunder look-ups (copy, pickle) on a half-made object would recurse for ever.
        if name.startswith("__") or name == "_loader":
            raise AttributeError(name)
        return getattr(self._loader, name)


class Door(Loader):
    """The loader of an engine's package: decides about the engine just before the package runs."""

    def exec_module(self, module: ModuleType) -> None:
        loader = self._own(module)
        self._overlay.ledger(module.__name__)
        self._overlay.check_strict()
        loader.exec_module(module)


overlay: Overlay | None = None
_lock = threading.Lock()


def install(way: str, engine_name: str | None = None) -> Overlay | None:
    """Start the overlay in this process, once; None when it is switched off.

    ``engine_name`` is the engine being imported right now, so that it is decided at once. Raises only
    :class:`Refused`, in strict mode.
    """
    global overlay
    with _lock:
        if overlay is None:
            wanted = settings.read()
            log.configure(wanted.log)
            for line in wanted.problems:
                logger.error("%s", line)
            if wanted.mode == "off":
                return None
            overlay = Overlay(way, wanted)
            overlay.problems += wanted.problems
            sys.meta_path.insert(0, Finder(overlay))
    for name in ENGINES:
        if name == engine_name or name in sys.modules:
            overlay.ledger(name)
    overlay.check_strict()
    return overlay
