"""Small engines and patches in a temporary folder, to test how the overlay decides, applies and undoes."""

from __future__ import annotations

import json
import os
import pkgutil
import subprocess
import sys
import textwrap
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import engine_overlay.patches
from engine_overlay import fingerprint
from engine_overlay.catalog import Catalog, Entry
from engine_overlay.record import Finding, Outcome, Patch, Range, Target
from tests.warm.client import Warm

GREET = """
    def greet(name):
        return "hello " + name


    class Greeter:
        def greet(self):
            return "plain"

        @staticmethod
        def still():
            return "still"

        @classmethod
        def kind(cls):
            return cls.__name__

        @property
        def mood(self):
            return "calm"
    """


def write(folder: Path, files: Mapping[str, str]) -> Path:
    """Write ``files`` (relative path -> source, dedented) under ``folder``."""
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text).lstrip("\n"), encoding="utf-8")
    return folder


def engine(folder: Path, version: str | None = "0.1.5", name: str = "vllm", **files: str) -> Path:
    """A package ``name`` with the module ``greeting``; more modules by keyword (``a__b`` is ``a/b.py``)."""
    sources = {f"{name}/__init__.py": "", f"{name}/greeting.py": GREET}
    sources |= {f"{name}/{key.replace('__', '/')}.py": text for key, text in files.items()}
    if version is not None:
        dist = {"vllm": "vllm", "aphrodite": "aphrodite_engine"}[name]
        sources[f"{dist}-{version}.dist-info/METADATA"] = f"Metadata-Version: 2.1\nName: {dist}\nVersion: {version}\n"
    return write(folder, sources)


def body(folder: Path, path: str, name: str = "vllm") -> str:
    """The fingerprint of a target in the engine that :func:`engine` wrote."""
    module, _, qualname = path.partition(":")
    found = fingerprint.of_file(folder / name / (module.replace(".", "/") + ".py"), qualname)
    assert found is not None
    return found


def record(path: str, bodies: tuple[str, ...], patch_id: str = "politer", **changes: Any) -> Patch:
    """A sound record with one target; ``changes`` replace fields."""
    fields: dict[str, Any] = {
        "id": patch_id,
        "engines": {"vllm": Range("0.1.0", "0.2.0")},
        "targets": (Target(path=path, bodies=bodies),),
        "reads": (),
        "upstream": (),
        "relationship": "workaround",
        "introduced_in": {"vllm": "0.1.0"},
        "fixed_in": {"vllm": None},
        "superseded_by": None,
        "group": None,
        "requires": (),
        "conflicts": (),
        "after": (),
        "default": True,
        "default_reason": "harmless",
        "scope": ("server",),
        "native_alternative": None,
        "remove_when": "the engine greets politely",
    }
    return Patch(**fields | changes)


def entry(patch: Patch, build: Any = None, origin: str = "built in") -> Entry:
    """An entry whose replacements append ``!`` to what the original returns, unless ``build`` is given."""
    return Entry(
        patch,
        lambda engine: Finding(Outcome.UNKNOWN, ""),
        build or (lambda engine, originals: {path: louder(old) for path, old in originals.items()}),
        "A test patch",
        "A test patch.",
        origin,
        "test",
    )


def louder(old: Any) -> Any:
    if isinstance(old, property):
        return property(lambda self: old.fget(self) + "!")
    inner = old.__func__ if isinstance(old, (staticmethod, classmethod)) else old

    def replacement(*args: Any, **kwargs: Any) -> str:
        return inner(*args, **kwargs) + "!"

    return replacement


def catalog(*entries: Entry) -> Catalog:
    return Catalog({e.patch.id: e for e in entries})


PATCH_MODULE = '''
    """A louder greeting."""
    from engine_overlay.record import Finding, Outcome, Patch, Range, Target
    PATCH = Patch(
        id={id!r}, engines={{"vllm": Range("0.1.0", "0.2.0")}},
        targets=(Target(path={path!r}, bodies=({body!r},)),), reads=(), upstream=(), relationship="workaround",
        introduced_in={{"vllm": "0.1.0"}}, fixed_in={{"vllm": None}}, superseded_by=None, group=None, requires=(),
        conflicts=(), after=(), default=True, default_reason="harmless", scope=("server",), native_alternative=None,
        remove_when="never",
    )
    def probe(engine):
        loud = engine.module("greeting").Greeter().greet().endswith("!")
        return Finding(Outcome.ABSENT if loud else Outcome.PRESENT, "greet")
    def build(engine, originals):
        def louder(old):
            def replacement(*args, **kwargs):
                return old(*args, **kwargs) + "!"
            return replacement
        return {{path: louder(old) for path, old in originals.items()}}
    '''


def third_party(folder: Path, module: str, source: str, point: str | None = None) -> Path:
    """A distribution that offers ``module`` as a patch by entry point."""
    return write(
        folder,
        {
            f"{module}.py": source,
            f"{module}-3.1.dist-info/METADATA": f"Metadata-Version: 2.1\nName: {module}\nVersion: 3.1\n",
            f"{module}-3.1.dist-info/entry_points.txt": f"[engine_overlay.patches]\n{point or module} = {module}\n",
        },
    )


def louder_patch(folder: Path, path: str = "greeting:Greeter.greet", patch_id: str = "louder") -> str:
    """Source of a third-party patch of the engine in ``folder``."""
    return PATCH_MODULE.format(id=patch_id, path=path, body=body(folder, path))


ROOT = Path(__file__).resolve().parents[2]
_LIBRARIES = ("asyncio", "packaging.specifiers", "rich.console", "rich.table", "typer.main", "typer.rich_utils")


@cache
def warm() -> Warm:
    """Forks of it have read the libraries of the command line and the records of all patches, and nothing is on."""
    within = engine_overlay.patches
    patches = [found.name for found in pkgutil.walk_packages(within.__path__, f"{within.__name__}.")]
    modules = [*_LIBRARIES, "engine_overlay.catalog", *patches]
    line = (ROOT / "sitecustomize_hooks" / "engine_overlay.pth").read_text(encoding="utf-8")
    return Warm(sys.executable, modules, variables(None, ENGINE_OVERLAY="off"), ROOT, line)


def variables(folder: Path | None, **env: str) -> dict[str, str]:
    """The environment variables of a process that finds ``folder`` first and keeps its status there."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith("ENGINE_OVERLAY")}
    own = {"PYTHONPATH": str(folder), "ENGINE_OVERLAY_STATE_DIR": str(folder / "state")} if folder else {}
    return clean | own | env


def python(folder: Path, code: str, **env: str) -> subprocess.CompletedProcess[str]:
    """Run ``code`` in a process of its own that finds ``folder`` first; the overlay comes by ``ENGINE_OVERLAY*``."""
    return warm().run(["-c", textwrap.dedent(code)], env=variables(folder, **env), timeout=120)


def answer(done: subprocess.CompletedProcess[str]) -> Any:
    """The JSON on the last line of a finished process's output."""
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])
