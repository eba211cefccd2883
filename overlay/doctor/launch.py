"""The servers that run here, and the command line of each: from the overlay's own report, or from ``/proc``.

The engine's own parser reads a command line in a process of its own; :meth:`Launch.flag` is the reading for when that
cannot be done.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from engine_overlay import settings, status
from engine_overlay.commandline import SUBCOMMANDS, Launch, NotUnderstood, given, ours, server, split

__all__ = ["SUBCOMMANDS", "Launch", "NotUnderstood", "given", "running", "split"]


_FIRST = ("API server", "main", "supervisor", "headless node", "gRPC server")
"""Roles of the processes that a command line started."""


def running(pid: int | None = None) -> list[Launch]:
    """The servers that run here, or the one in process ``pid``, each once; those of other users only where readable."""
    seen: dict[int, Launch] = {}
    wanted = settings.read().state_dir
    for place in [wanted] if wanted else status.places()[0]:
        for report in status.read_all(place) if place.is_dir() else ():
            starts = str(report.get("role") or "").startswith(_FIRST)
            if pid in (None, report["pid"]) and starts:
                _add(seen, report["pid"], report["argv"], "its report")
    for found in _processes() if pid is None else [pid]:
        if found not in seen:
            _add(seen, found, _words(found), "/proc")
    # Processes that a server forked off have its command line.
    return [launch for p, launch in seen.items() if pid is not None or _parent(p) not in seen]


def _add(seen: dict[int, Launch], pid: int, words: Sequence[str], how: str) -> None:
    found = server(words, containers=False)
    if found is None:
        return
    first = Path(words[0])
    python = str(first) if first.is_absolute() and first.name.startswith("python") else None
    seen[pid] = replace(found, source=f"pid {pid}, by {how}", environ=ours(_environ(pid)), pid=pid, python=python)


def _processes() -> Iterator[int]:
    folder = Path("/proc")
    # Whoever started the doctor may have a server's command line in its own words.
    above: list[int | None] = [os.getpid()]
    while (parent := _parent(above[-1] or 0)) is not None:
        above.append(parent)
    for entry in folder.iterdir() if folder.is_dir() else ():
        if entry.name.isdigit() and int(entry.name) not in above:
            yield int(entry.name)


def _words(pid: int) -> list[str]:
    try:
        raw = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return []
    return raw.decode(errors="replace").rstrip("\0").split("\0")


def _environ(pid: int) -> dict[str, str]:
    try:
        raw = Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return {}
    pairs = (entry.partition("=") for entry in raw.decode(errors="replace").split("\0"))
    return {name: value for name, equals, value in pairs if equals}


def _parent(pid: int) -> int | None:
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    return int(text.rpartition(")")[2].split()[1])
