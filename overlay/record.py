"""The record of a patch: what it touches, which releases it fits, and how its fault is shown.

A patch is one module with a docstring, one :class:`Patch` named ``PATCH``, a ``probe(engine)`` and a
``build(engine, originals)``. Nothing here imports an engine or another room of the overlay.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

ABSENT = "absent"
"""Accepted body of a target that the patch *adds*: the owner's own namespace must not define the name."""

ENGINES = ("vllm", "aphrodite")

Relationship = Literal["backport", "workaround", "different approach"]
Scope = Literal["server", "metrics", "config", "engine core", "worker", "command"]
"""Where a patch works: in the answers of the API server, in its metrics, where the engine's config is made, in the
engine's core, in its workers, or in its command collect-env. :mod:`engine_overlay.reach` says what requests meet."""

_ID = re.compile(r"[a-z][a-z0-9_]*\Z")
_PATH = re.compile(r"[a-z_][\w.]*:[A-Za-z_][\w.]*\Z")
_BODY = re.compile(r"[0-9a-f]{12}\Z")


class RecordError(ValueError):
    """A patch record that contradicts itself; carries one line that names the field."""


@dataclass(frozen=True, slots=True)
class Range:
    """A closed range of engine releases: both ends were tested, nothing outside was."""

    first: str
    last: str

    def __str__(self) -> str:
        return f"{self.first} to {self.last}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A callable or property of the engine, and the bodies of it that the patch was written against.

    ``path`` is relative to the engine's package, module and qualified name apart:
    ``parser.engine.parser_engine:ParserEngine.extract_reasoning``. ``bodies`` are fingerprints as
    :func:`engine_overlay.fingerprint.of_source` gives them, or :data:`ABSENT`.
    """

    path: str
    bodies: tuple[str, ...]

    def __post_init__(self) -> None:
        if not _PATH.match(self.path):
            raise RecordError(f"target path {self.path!r} is not 'module:qualified.name'")
        if not self.bodies:
            raise RecordError(f"target {self.path}: no accepted body")
        for body in self.bodies:
            if body != ABSENT and not _BODY.match(body):
                raise RecordError(f"target {self.path}: {body!r} is not a fingerprint of 12 hex digits")

    @property
    def module(self) -> str:
        """The module, relative to the engine's package."""
        return self.path.partition(":")[0]

    @property
    def qualname(self) -> str:
        return self.path.partition(":")[2]


@dataclass(frozen=True, slots=True, kw_only=True)
class Patch:
    """What the overlay must know of a patch to decide, apply, undo and report it.

    Every field is required, also when the answer is ``None`` or empty, so that nothing is left open by accident.
    ``superseded_by`` names the patch that takes over from the releases of ``fixed_in`` on, where those did not mend the
    fault but moved it. ``after`` names patches that may share a target and then lie beneath this one, without being
    required.
    """

    id: str
    engines: Mapping[str, Range]
    targets: tuple[Target, ...]
    reads: tuple[Target, ...]
    upstream: tuple[str, ...]
    relationship: Relationship
    introduced_in: Mapping[str, str]
    fixed_in: Mapping[str, str | None]
    superseded_by: str | None
    group: str | None
    requires: tuple[str, ...]
    conflicts: tuple[str, ...]
    after: tuple[str, ...]
    default: bool
    default_reason: str
    scope: tuple[Scope, ...]
    native_alternative: str | None
    remove_when: str

    def __post_init__(self) -> None:
        if not _ID.match(self.id):
            raise RecordError(f"id {self.id!r} is not a lower-case Python name")
        if not self.engines:
            raise RecordError(f"{self.id}: engines is empty")
        for field in ("engines", "introduced_in", "fixed_in"):
            value = getattr(self, field)
            unknown = sorted(set(value) - set(ENGINES))
            if unknown:
                raise RecordError(f"{self.id}: {field} names the unknown engine {unknown[0]!r}")
            if set(value) != set(self.engines):
                raise RecordError(f"{self.id}: {field} must name the same engines as engines")
        if not self.targets:
            raise RecordError(f"{self.id}: targets is empty")
        paths = [t.path for t in (*self.targets, *self.reads)]
        twice = sorted({p for p in paths if paths.count(p) > 1})
        if twice:
            raise RecordError(f"{self.id}: {twice[0]} is named twice in targets and reads")
        if self.id in (*self.requires, *self.conflicts, *self.after):
            raise RecordError(f"{self.id}: requires, conflicts or after names itself")
        both = sorted(set(self.requires) & set(self.conflicts))
        if both:
            raise RecordError(f"{self.id}: both requires and conflicts with {both[0]}")
        if not self.scope:
            raise RecordError(f"{self.id}: scope is empty")
        if not self.default_reason or not self.remove_when:
            raise RecordError(f"{self.id}: default_reason and remove_when need a sentence")


@dataclass(frozen=True, slots=True, kw_only=True)
class Tombstone:
    """What is left of a retired patch, so that a setting that still names it gets a clear answer."""

    id: str
    reason: str
    fixed_in: Mapping[str, str]


class Outcome(enum.Enum):
    """What a probe saw: the fault, its absence, or neither for certain."""

    PRESENT = "PRESENT"
    ABSENT = "ABSENT"
    UNKNOWN = "UNKNOWN"


@dataclass(frozen=True, slots=True)
class Finding:
    """The answer of ``probe(engine)``, with the literal output that decided it."""

    outcome: Outcome
    evidence: str
