"""Start-up for programs run by ``engine-overlay run``, whose environment need not have the overlay installed.

Python imports only the first ``sitecustomize`` on ``sys.path``, and the launcher makes that this one; so it
also runs the one that it hides.
"""

import sys
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from os.path import dirname, isdir, join, realpath

_HERE = dirname(realpath(__file__))


def _package_folders():
    # Installed, this folder is engine_overlay/_launcher; a checkout has it beside overlay/ and patches/.
    above = dirname(_HERE)
    if isdir(join(above, "overlay")):
        return {"engine_overlay": join(above, "overlay"), "engine_overlay.patches": join(above, "patches")}
    return {"engine_overlay": above}


class _LauncherFinder:
    # Finds the overlay, and nothing else, where the launcher was installed. That site-packages folder on
    # PYTHONPATH would do too, but would also put all its other packages before the program's own.
    __engine_overlay__ = True
    folders = _package_folders()

    @classmethod
    def find_spec(cls, name, path=None, target=None):
        folder = cls.folders.get(name)
        if folder is None:
            return None
        init = join(folder, "__init__.py")
        spec = ModuleSpec(name, SourceFileLoader(name, init), origin=init, is_package=True)
        spec.submodule_search_locations.append(folder)
        spec.has_location = True
        return spec


def _start():
    if "_engine_overlay_startup" not in sys.modules:
        import _engine_overlay_startup

        _engine_overlay_startup.way = "launcher"
    # Last, so that an overlay of the program's own environment comes first.
    sys.meta_path.append(_LauncherFinder)


def _run_hidden():
    others = [entry for entry in sys.path if realpath(entry) != _HERE]
    spec = PathFinder.find_spec(__name__, others)
    if spec is None or spec.loader is None:
        return
    from importlib.util import module_from_spec

    # What it does and what it raises is what Python would have seen without us.
    sys.modules[__name__] = module = module_from_spec(spec)
    spec.loader.exec_module(module)


if sys.modules["os"].environ.get("ENGINE_OVERLAY", "").strip().lower() != "off":
    _start()
_run_hidden()
