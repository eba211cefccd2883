"""Waits for an inference engine to be imported, then lets engine_overlay in; does nothing until then.

This is the only module of the overlay that runs in every Python process, so it imports nothing but ``sys``,
and the module itself is the meta-path finder. It is a package of one file because uv, unlike pip, leaves the
compiled file of a top-level module behind when it uninstalls.
"""

import sys

__engine_overlay__ = True  # how the overlay's own code recognises this finder on sys.meta_path

_way = None


def start(way="startup"):
    """Wait for an engine from now on; ``way`` names who asked. Later calls change nothing.

    A virtual environment runs a .pth file twice, and the launcher may come on top of it.
    """
    global _way
    # The .pth line has looked already; engine_overlay.start (Python 3.15) and the launcher have not.
    if _way is None and _mode() != "off":
        _way = way
        sys.meta_path.insert(0, sys.modules[__name__])


def find_spec(name, path=None, target=None):
    """Answer for an engine's package only: its own spec, with a loader that opens the door first."""
    if name != "vllm" and name != "aphrodite":
        return None
    finders = list(sys.meta_path)
    waiter = sys.modules[__name__]
    # Those before us have been asked already.
    for finder in finders[finders.index(waiter) + 1 :] if waiter in finders else ():
        ask = getattr(finder, "find_spec", None)
        spec = ask(name, path, target) if ask else None
        if spec is not None:
            # A folder without __init__.py is no engine.
            if spec.has_location and spec.loader is not None:
                spec.loader = _Door(spec.loader)
            return spec
    return None


class _Door:
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
        _enter(module.__name__)
        self.loader.exec_module(module)


def _enter(engine):
    try:
        from engine_overlay import importer

        refused = importer.Refused
    except Exception as problem:
        # Who asked for all patches or nothing gets nothing.
        if _mode() == "strict":
            raise ImportError(_line(problem, "refusing to start")) from problem
        _say(_line(problem, "the engine runs unpatched"))
    else:
        try:
            importer.install(_way, engine)
        except refused:
            # On purpose, and again at the next attempt to import the engine.
            raise
        except Exception as problem:
            _say(_line(problem, "the engine runs unpatched"))
    # Two threads may come through two doors, for two engines.
    if sys.modules[__name__] in sys.meta_path:
        sys.meta_path.remove(sys.modules[__name__])


def _mode():
    # site has imported os before it reads any start-up file.
    return sys.modules["os"].environ.get("ENGINE_OVERLAY", "").strip().lower()


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
