"""A made-up engine on disk, for asking the gate what it says of a body that no release has."""

from __future__ import annotations

from pathlib import Path

from engine_overlay import verdict
from engine_overlay.catalog import BUILT_IN, Catalog, entry_of
from engine_overlay.engines import Engine
from engine_overlay.settings import Settings
from engine_overlay.verdict import Verdict


def ask(folder: Path, patch_module, version: str, sources: dict[str, str], name: str = "vllm") -> Verdict:
    """What the gate says of the patch on an engine whose modules have these sources (dotted name -> text)."""
    root = folder / name
    for dotted, text in {"": "", **sources}.items():
        path = root.joinpath(*dotted.split(".")).with_suffix(".py") if dotted else root / "__init__.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    entry = entry_of(patch_module, BUILT_IN)
    catalog = Catalog(entries={entry.patch.id: entry})
    return verdict.decide(catalog, Engine(name, version, None, root), Settings())[entry.patch.id]
