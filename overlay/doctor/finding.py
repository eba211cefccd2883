"""One finding of the doctor, and how findings are put in order."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

Level = Literal["problem", "note", "ok"]

LEVELS: tuple[Level, ...] = ("problem", "note", "ok")
"""The worst first. A *problem* loses or refuses something, a *note* is worth knowing, *ok* is well."""


@dataclass(frozen=True, slots=True)
class Finding:
    """``what`` is true, ``why`` it matters or how it is known, and the command or flags that mend it.

    ``subject`` is the check that found it. ``fix`` is empty where nothing has to be done.
    """

    subject: str
    level: Level
    what: str
    why: str = ""
    fix: str = ""


def ordered(findings: Iterable[Finding]) -> list[Finding]:
    """Problems first, then notes; within a level in the order in which they were found."""
    return sorted(findings, key=lambda finding: LEVELS.index(finding.level))
