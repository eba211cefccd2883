"""``engine-overlay explain ID``: one patch in full, and its verdict for the installed engine."""

from __future__ import annotations

import argparse

from engine_overlay import catalog, engines, settings, verdict
from engine_overlay.cli.main import fail


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("id", help='a patch id, as "engine-overlay plan" lists them')


def main(args: argparse.Namespace) -> int:
    known = catalog.load()
    name = settings.normal_id(args.id)
    stone = known.tombstones.get(name)
    if stone is not None:
        print(f"{name} was retired: {stone.reason}")
        return 0
    entry = known.entries.get(name)
    if entry is None:
        guess = settings.suggest(name, known.entries)
        return fail("explain", f"there is no patch {name}{guess}", '"engine-overlay plan" lists the known ones')
    patch = entry.patch
    print(f"{patch.id} ({entry.origin})\n\n{entry.description}\n")
    for engine, closed in patch.engines.items():
        fixed = patch.fixed_in[engine]
        came = patch.introduced_in[engine]
        ends = "not fixed yet"
        if fixed:
            ends = f"{patch.superseded_by} takes over in {fixed}" if patch.superseded_by else f"fixed in {fixed}"
        print(f"{engine}: tested on {closed}; concerns {came} and later; {ends}")
    print(f"replaces: {', '.join(t.path for t in patch.targets)}")
    if patch.reads:
        print(f"relies on: {', '.join(t.path for t in patch.reads)}")
    print(f"relationship: {patch.relationship}; {'on' if patch.default else 'off'} by default: {patch.default_reason}")
    if patch.native_alternative:
        print(f"the engine's own switch: {patch.native_alternative}")
    print(f"remove when: {patch.remove_when}")
    for link in patch.upstream:
        print(f"upstream: {link}")
    for engine in engines.installed():
        v = verdict.decide(known, engine, settings.read())[name]
        print(f"here, {engine.label}: {v.code}: {v.reason}")
    return 0
