"""Every built-in patch is refused, and says which body it does not know, when any function it touches has changed."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import pytest

from engine_overlay import catalog, engines, fingerprint, verdict
from engine_overlay.engines import Engine
from engine_overlay.record import Target
from engine_overlay.settings import Settings
from engine_overlay.verify import releases

LABELS = ("vllm-0.19.1", "vllm-0.24.0", "vllm-0.28.0", "vllm-0.33.0", "aphrodite_engine-0.24.1")

ASKED = Settings(enable=tuple(i for i, e in catalog.load(third_party=False).entries.items() if not e.patch.default))
"""Patches that are off by default are looked at too."""

pytestmark = pytest.mark.engine


@dataclass(frozen=True)
class Changed(Engine):
    """The engine with other source files for some modules."""

    files: dict[str, Path] = field(default_factory=dict)

    def source(self, dotted: str) -> Path | None:
        return self.files.get(dotted) or super().source(dotted)


@cache
def engine_of(label: str) -> Engine:
    sources = releases.fetch(releases.named(label))
    (found,) = engines.installed([str(sources)])
    return found


@cache
def known() -> catalog.Catalog:
    return catalog.load(third_party=False)


def touched(label: str) -> Iterator[tuple[str, Target]]:
    """(id, target) for every function that a patch replaces or relies on in this release."""
    decided = verdict.decide(known(), engine_of(label), ASKED)
    for patch_id, entry in known().entries.items():
        if decided[patch_id].code == "apply":
            for target in (*entry.patch.targets, *entry.patch.reads):
                yield patch_id, target


def changed_source(path: Path, qualname: str) -> str:
    """The file with one more statement in the function or class, or another value in the assignment."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    node = fingerprint.find(tree, qualname)
    assert node is not None
    extra = ast.parse("_changed_by_upstream = 1").body
    if hasattr(node, "body"):
        node.body = [*node.body, *extra]
    else:
        node.value = ast.Constant("changed by upstream")
    return ast.unparse(ast.fix_missing_locations(tree))


@pytest.mark.parametrize("label", LABELS)
def test_a_changed_body_of_any_function_is_refused(label, tmp_path):
    stock = engine_of(label)
    checked = set()
    for n, (patch_id, target) in enumerate(touched(label)):
        original = stock.source(target.module)
        if original is None or fingerprint.of_file(original, target.qualname) is None:
            continue
        other = tmp_path / f"{n}.py"
        other.write_text(changed_source(original, target.qualname), encoding="utf-8")
        engine = Changed(stock.name, stock.version, stock.distribution, stock.root, {target.module: other})
        # The patch alone: what it needs of the others is decided after its bodies.
        found = verdict.decide(catalog.Catalog({patch_id: known().entries[patch_id]}), engine, ASKED)[patch_id]
        assert found.code == "drifted", (patch_id, target.path, found)
        assert target.qualname.rpartition(".")[2] in found.reason
        checked.add(patch_id)
    assert len(checked) >= 4
