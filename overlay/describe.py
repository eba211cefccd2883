"""All that a patch's record and docstring say, as plain data: for the command line and for the pages of the docs."""

from __future__ import annotations

import re
from typing import Any

from engine_overlay.catalog import BUILT_IN, Entry
from engine_overlay.settings import PROFILES

SECTIONS = ("symptom", "cause", "change", "risk")
"""The paragraphs of a patch's docstring, in their order, each named by its first word."""

_ROLE = re.compile(r":\w+:`~?([^`]+)`")
"""A reference as docstrings have it, like :class:`a.b.C`."""


def facts(entry: Entry) -> dict[str, Any]:
    """``{"id", "title", "area", "origin", "symptom", "cause", "change", "risk", "engines", ...}``: see the code.

    A section that the docstring does not have is empty. ``file``, ``test`` and ``page`` are paths in the repository,
    None for patches of others.
    """
    patch = entry.patch
    engines = {
        name: {
            "first": closed.first,
            "last": closed.last,
            "introduced_in": patch.introduced_in[name],
            "fixed_in": patch.fixed_in[name],
        }
        for name, closed in patch.engines.items()
    }
    built_in = entry.origin == BUILT_IN
    return {
        "id": patch.id,
        "title": entry.title,
        "area": entry.area,
        "origin": entry.origin,
        **sections(entry.description),
        "engines": engines,
        "superseded_by": patch.superseded_by,
        "targets": [{"path": target.path, "bodies": list(target.bodies)} for target in patch.targets],
        "reads": [{"path": target.path, "bodies": list(target.bodies)} for target in patch.reads],
        "upstream": list(patch.upstream),
        "relationship": patch.relationship,
        "default": patch.default,
        "default_reason": patch.default_reason,
        "scope": list(patch.scope),
        "group": patch.group,
        "requires": list(patch.requires),
        "conflicts": list(patch.conflicts),
        "after": list(patch.after),
        "native_alternative": patch.native_alternative,
        "remove_when": patch.remove_when,
        "switch_on": [f"ENGINE_OVERLAY_ENABLE={patch.id}", *_profiles(patch.id)] if not patch.default else [],
        "switch_off": f"ENGINE_OVERLAY_DISABLE={patch.id}",
        "file": f"patches/{entry.area}/{patch.id}.py" if built_in else None,
        "test": f"tests/patches/{entry.area}/test_{patch.id}.py" if built_in else None,
        "page": f"docs/patches/{patch.id}.md" if built_in else None,
    }


def sections(description: str) -> dict[str, str]:
    """The four paragraphs of a docstring, each on one line, without its first word, code in single back-ticks."""
    found = dict.fromkeys(SECTIONS, "")
    for paragraph in description.split("\n\n"):
        first, colon, rest = paragraph.partition(":")
        if colon and first.strip().lower() in found:
            text = _ROLE.sub(r"`\1`", " ".join(rest.split())).replace("``", "`")
            found[first.strip().lower()] = text[:1].upper() + text[1:]
    return found


def lifetime(facts: dict[str, Any], engine: str) -> str:
    """Which releases of an engine a patch is for, and what ends it, in a line."""
    row = facts["engines"][engine]
    ends = "not fixed yet"
    if row["fixed_in"]:
        by = facts["superseded_by"]
        ends = f"{by} takes over in {row['fixed_in']}" if by else f"fixed in {row['fixed_in']}"
    return f"tested on {row['first']} to {row['last']}; concerns {row['introduced_in']} and later; {ends}"


def _profiles(patch_id: str) -> list[str]:
    return [f"ENGINE_OVERLAY_PROFILE={name}" for name, ids in PROFILES.items() if patch_id in ids]
