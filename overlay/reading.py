"""What the processes of this machine report, for ``engine-overlay status`` and ``doctor``: bounded, and judged.

A report may be another user's and made up. It costs a line and never more than :data:`TOTAL_S` and a fixed amount of
memory; whose word it is stands in it, and that is the kernel's word: who listens on the socket, else whose file it is.
"""

from __future__ import annotations

import json
import math
import os
import re
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from engine_overlay import identity, live, statefolder
from engine_overlay.identity import EARLIER, ELSEWHERE, GONE, RUNNING, Process
from engine_overlay.statefolder import Folder, Unfit

TOTAL_S = 10.0
"""After this nobody is asked any more; who was not is shown by what it wrote last."""
BUDGET_BYTES = 1 << 24
"""Of all reports together."""
MAX_LINES = 20
"""So many things that are wrong are named, the others counted."""

_MAX_NODES, _MAX_DEPTH, _MAX_ROWS = 20_000, 12, 1000
_STALE_S = 3600.0
_FOLDER = "engine-overlay-"
_DEFAULT = re.compile(rf"{_FOLDER}[0-9]{{1,10}}")
_WORDS = {"id", "verdict", "reason", "state", "state_reason"}

_IN_OTHER_CASES = {"engine": None, "way": None, "profile": None, "role": None, "argv": [], "values": {}, "problems": []}
"""What a report of an earlier version may not have."""


class Unsound(ValueError):
    """Bytes that are no report."""


@dataclass(slots=True)
class Found:
    """``reports`` as :func:`engine_overlay.status.report` makes them, each with ``live``, ``user``, ``word`` and
    ``elsewhere``; ``lines`` are what is to be said of files and folders that are not used."""

    reports: list[dict[str, Any]] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    looked: list[Path] = field(default_factory=list)
    deadline: float = field(default_factory=lambda: time.monotonic() + TOTAL_S)
    budget: int = BUDGET_BYTES
    unsaid: int = 0

    def say(self, line: str) -> None:
        if len(self.lines) < MAX_LINES:
            self.lines.append(line)
        else:
            self.unsaid += 1


def gather(wanted: Path | None = None, pid: int | None = None) -> Found:
    """What the running processes say now; files and sockets that dead processes of this user left are removed.

    ``wanted`` is a folder that was named; else it is those of all users in the temporary directory, this user's first.
    ``live`` in a report says whether the process itself answered; else it is what it wrote last.
    """
    found = Found()
    for place, owner in [(wanted, None)] if wanted is not None else _places():
        found.looked.append(place)
        if time.monotonic() > found.deadline:
            found.say(f"{place}: not looked at, the time is up")
            continue
        try:
            with Folder.open(place, owner=owner) as folder:
                _Reader(folder, found, pid, own=owner is not None).read()
        except FileNotFoundError:
            continue
        except PermissionError:
            found.say(f"{place} belongs to another user and cannot be read; run it as that user, or root")
            found.looked.remove(place)
        except OSError as error:
            found.say(str(error))
            found.looked.remove(place)
    if found.unsaid:
        found.lines.append(f"and {found.unsaid} more of the kind")
    return found


def default_folder() -> Path:
    """The folder of this user in the temporary directory."""
    return Path(tempfile.gettempdir()) / f"{_FOLDER}{os.geteuid()}"


def _places() -> Iterator[tuple[Path, int]]:
    """The default folders, and the users that they have to belong to."""
    mine = default_folder()
    yield mine, os.geteuid()
    with os.scandir(mine.parent) as entries:
        names = [entry.name for entry in entries if _DEFAULT.fullmatch(entry.name) and entry.name != mine.name]
    for name in sorted(names)[: statefolder.MAX_NAMES]:
        yield mine.parent / name, int(name[len(_FOLDER) :])


class _Reader:
    """One folder, read once. ``own`` says that it is the default one of a user, which no other machine shares."""

    def __init__(self, folder: Folder, found: Found, pid: int | None, *, own: bool) -> None:
        self.folder, self.found, self.pid, self.own = folder, found, pid, own
        self.earlier = 0

    def read(self) -> None:
        names, more = self.folder.names()
        if more:
            self.found.say(f"{self.folder.path}: more than {len(names)} files; the others are not looked at")
        written: dict[str, tuple[Process, dict[str, Any], int]] = {}
        for name in names:
            stem, _, suffix = name.rpartition(".")
            process = identity.parse(stem) if suffix == "json" else None
            if process is not None and (file := self._file(name, process)) is not None:
                written[stem] = (process, *file)
        self._sweep(names)
        # This user's own first: what others do with the time is at their own cost.
        order = sorted(written, key=lambda stem: (written[stem][2] != os.geteuid(), written[stem][2]))
        answers = live.ask_all(self.folder, order, self.found.deadline)
        for stem, (process, data, owner) in sorted(written.items()):
            report = self._judged(stem, process, data, owner, answers[stem])
            if report is not None:
                self.found.reports.append(report)
        if self.earlier:
            said = f"{self.earlier} files are of an earlier boot or another machine; they are left alone"
            self.found.say(f"{self.folder.path}: {said}")

    def _file(self, name: str, process: Process) -> tuple[dict[str, Any], int] | None:
        """The report of a process that may run, and whose file it is."""
        fate = process.fate()
        if fate in (GONE, EARLIER):
            if fate == EARLIER and not self.own:
                self.earlier += 1
            elif self.folder.is_mine(name) and self._is_report(name, process):
                self._remove(name.rpartition(".")[0])
            return None
        if self.pid not in (None, process.pid):
            return None
        try:
            if self.found.budget <= 0:
                raise Unfit("all reports together are too long; it is left out")
            raw, owner = self.folder.read(name)
            self.found.budget -= len(raw)
            data = parse(raw)
            if data["pid"] != process.pid:
                raise Unsound("it is named after another process than it is about")
            users = identity.users_of(process.pid) if fate == RUNNING else frozenset()
            if users and owner not in users | {0}:
                whose = " and ".join(map(str, sorted(users)))
                raise Unfit(f"user {owner} wrote it about a process of user {whose}; it is left out")
            return data, owner
        except FileNotFoundError:
            return None
        except Unsound as error:
            self.found.say(f"the report of process {process.pid} cannot be read; {error} ({self.folder.path / name})")
        except OSError as error:
            self.found.say(f"{self.folder.path / name}: {error}")
        return None

    def _judged(
        self, stem: str, process: Process, data: dict[str, Any], owner: int, answer: live.Answer
    ) -> dict[str, Any] | None:
        """The report to show, and whose word it is; None for a process that has ended."""
        elsewhere = process.fate() == ELSEWHERE
        if answer.refused and elsewhere:
            # No kernel's word about its process id from here, but this is one: nobody has that socket open.
            if self.folder.is_mine(f"{stem}.json"):
                self._remove(stem)
            return None
        added = {"pid": process.pid, "live": False, "user": owner, "word": "file", "elsewhere": elsewhere}
        if answer.uid is None or answer.data is None and not answer.too_long:
            return data | added
        path = self.folder.path / f"{stem}.sock"
        if answer.uid != owner or not elsewhere and answer.pid != process.pid:
            self.found.say(f"{path}: process {answer.pid} of user {answer.uid} answers in the name of another")
        elif answer.data is None:
            self.found.say(f"{path}: user {answer.uid} answers with more than a report can have")
        else:
            try:
                self.found.budget -= len(answer.data)
                now = parse(answer.data)
                return now | added | {"live": True, "user": answer.uid, "word": "kernel"}
            except Unsound as error:
                self.found.say(f"the answer of process {process.pid} cannot be read; {error} ({path})")
        return data | added

    def _sweep(self, names: list[str]) -> None:
        """Remove what dead processes of this user left beside no report: sockets and files that were never finished."""
        there = set(names)
        for name in names:
            stem, _, suffix = name.rpartition(".")
            part = statefolder.part_of(name)
            if part is None and (suffix != "sock" or "-" not in stem or f"{stem}.json" in there):
                continue
            process = identity.parse(part or stem)
            if process is None or not self.folder.is_mine(name):
                continue
            fate = process.fate()
            old = part is not None and self.folder.age(name, time.time()) > _STALE_S
            if fate == GONE or fate == EARLIER and self.own or old:
                self.folder.remove(name)

    def _is_report(self, name: str, process: Process) -> bool:
        try:
            return parse(self.folder.read(name)[0])["pid"] == process.pid
        except (OSError, Unsound):
            return False

    def _remove(self, stem: str) -> None:
        for suffix in ("json", "sock"):
            self.folder.remove(f"{stem}.{suffix}")


def parse(raw: bytes) -> dict[str, Any]:
    """A report, with everything that is read of it in its place. Raises Unsound for anything else."""
    try:
        data = json.loads(raw, parse_int=_whole, parse_float=_finite, parse_constant=_finite)
    except (ValueError, RecursionError):
        raise Unsound("it is no JSON that a report could be") from None
    if not isinstance(data, dict) or not _bounded(data):
        raise Unsound("it is of another version, or made up")
    report = _IN_OTHER_CASES | {key: value for key, value in data.items() if value is not None}
    if not _sound(report):
        raise Unsound("it is of another version, or made up")
    return report | {"argv": [str(word) for word in report["argv"]]}


def _whole(digits: str) -> int:
    if len(digits) > 20:
        raise ValueError("a number that is too long")
    return int(digits)


def _finite(digits: str) -> float:
    value = float(digits)
    if not math.isfinite(value):
        raise ValueError("a number that is none")
    return value


def _bounded(data: Any) -> bool:
    """Whether it is small and flat enough to be shown; without recursion, which deep data would end."""
    level, nodes = [data], 0
    for _ in range(_MAX_DEPTH):
        inner: list[Any] = []
        for one in level:
            if isinstance(one, (list, dict)):
                nodes += len(one)
                if len(one) > _MAX_ROWS or nodes > _MAX_NODES:
                    return False
                inner += one.values() if isinstance(one, dict) else one
        if not inner:
            return True
        level = inner
    return False


def _sound(report: dict[str, Any]) -> bool:
    kinds = {"pid": int, "argv": list, "values": dict, "problems": list, "patches": list}
    return (
        all(isinstance(report.get(key), kind) for key, kind in kinds.items())
        and isinstance(report.get("time", 0), (int, float))
        and isinstance(report["engine"], (dict, type(None)))
        and all(isinstance(values, dict) for values in report["values"].values())
        and all(isinstance(patch, dict) and _WORDS <= set(patch) for patch in report["patches"])
        and all(isinstance(patch[key], str) for patch in report["patches"] for key in ("id", "verdict"))
    )
