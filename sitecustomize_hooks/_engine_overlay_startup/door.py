"""What happens when an engine is imported; nothing here is loaded before."""

import os
import sys
from _thread import get_ident

import _engine_overlay_startup as waiter

_asking = set()


def find_spec(name, path=None, target=None):
    """The engine's own spec, with a loader that lets the overlay in first; None when there is no such engine."""
    # Other tools' finders ask all finders anew, this one too.
    question = name, get_ident()
    if question in _asking:
        return None
    _asking.add(question)
    try:
        return _find_spec(name, path, target)
    finally:
        _asking.discard(question)


def _find_spec(name, path, target):
    finders = list(sys.meta_path)
    # Those before us have been asked already.
    for finder in finders[finders.index(waiter) + 1 :] if waiter in finders else ():
        ask = getattr(finder, "find_spec", None)
        spec = ask(name, path, target) if ask else None
        if spec is not None:
            # A folder without __init__.py is no engine.
            if spec.has_location and spec.loader is not None:
                spec.loader = Door(spec.loader)
            return spec
    return None


class Door:
    # The overlay is loaded when the engine's package is about to run, not when it is being found: finders run
    # under the global import lock, where importing what another thread is importing is a deadlock. By then
    # the package is in sys.modules, so that a patch which imports it does not load it twice.
    def __init__(self, loader):
        self.loader = loader

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.loader, name)

    def create_module(self, spec):
        return self.loader.create_module(spec)

    def exec_module(self, module):
        module.__spec__.loader = module.__loader__ = self.loader
        enter(module.__name__)
        self.loader.exec_module(module)


def enter(engine, way=None):
    try:
        from engine_overlay import importer

        refused = importer.Refused
    except Exception as problem:
        # Who asked for all patches or nothing gets nothing.
        if mode() == "strict":
            raise ImportError(_line(problem, "refusing to start")) from problem
        _say(_line(problem, "the engine runs unpatched"))
    else:
        try:
            importer.install(way or waiter.way, engine)
        except refused:
            # On purpose, and again at the next attempt to import the engine.
            raise
        except Exception as problem:
            _say(_line(problem, "the engine runs unpatched"))
    # Two threads may come through two doors, for two engines.
    if waiter in sys.meta_path:
        sys.meta_path.remove(waiter)


def mode():
    return os.environ.get("ENGINE_OVERLAY", "").strip().lower()


def _line(problem, outcome):
    reason = " ".join(f"{type(problem).__name__}: {problem}".split())
    return f"engine-overlay: start-up: {reason}; {outcome}; reinstall it or set ENGINE_OVERLAY=off"


def _say(line):
    # A standard error that is closed or missing must not break the engine's import either.
    try:
        sys.stderr.write(line + "\n")
        sys.stderr.flush()
    except Exception:
        pass
