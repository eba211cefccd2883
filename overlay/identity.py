"""Which process on which machine: a process id alone is used again, and each container has a process 1 of its own.

A process is named by its id, its start, its namespace of process ids and the boot of its kernel. All four are the
kernel's word, read from ``/proc``; where there is none they are 0, and the process id alone has to do.
"""

from __future__ import annotations

import contextlib
import os
import re
from dataclasses import dataclass
from pathlib import Path

RUNNING, GONE, ELSEWHERE, EARLIER = "running", "gone", "elsewhere", "earlier"
"""What can be said of a process from here; ELSEWHERE is another namespace, EARLIER another boot or machine."""

_NAME = re.compile(r"([0-9]{1,10})(?:-([0-9]{1,20})-([0-9]{1,20})-([0-9a-f]{1,8}))?")


@dataclass(frozen=True, slots=True)
class Process:
    """``start`` is in clock ticks after the boot; fields that are not known are "0"."""

    pid: int
    start: str = "0"
    namespace: str = "0"
    boot: str = "0"

    def __str__(self) -> str:
        return f"{self.pid}-{self.start}-{self.namespace}-{self.boot}"

    def fate(self) -> str:
        """Whether this very process runs, and not another one that has its process id now."""
        if self.boot not in ("0", boot()):
            return EARLIER
        if self.namespace not in ("0", namespace()):
            return ELSEWHERE
        now = start_of(self.pid)
        if now != "0":
            return RUNNING if self.start in ("0", now) else GONE
        # /proc may hide the processes of other users, or not be there at all.
        try:
            os.kill(self.pid, 0)
        except (ProcessLookupError, OverflowError):
            return GONE
        except OSError:
            return RUNNING
        return RUNNING


def parse(name: str) -> Process | None:
    """The process that a file is named after, without its suffix; None where it is not one of our names."""
    found = _NAME.fullmatch(name)
    return Process(int(found[1]), *(found[i] or "0" for i in (2, 3, 4))) if found else None


def this() -> Process:
    pid = os.getpid()
    return Process(pid, start_of(pid), namespace(), boot())


def start_of(pid: int) -> str:
    """When the process with this id started; "0" where that cannot be read."""
    fields = _text(f"/proc/{pid}/stat").rpartition(")")[2].split()
    # The name of a program, in brackets, may hold anything; the start is the 20th field after it.
    return fields[19] if len(fields) > 19 else "0"


def users_of(pid: int) -> frozenset[int]:
    """The real and the effective user of a process; empty where that cannot be read."""
    for line in _text(f"/proc/{pid}/status").splitlines():
        if line.startswith("Uid:"):
            return frozenset(map(int, line.split()[1:3]))
    return frozenset()


def namespace() -> str:
    with contextlib.suppress(OSError):
        return str(os.stat("/proc/self/ns/pid").st_ino)
    return "0"


def boot() -> str:
    return _text("/proc/sys/kernel/random/boot_id").partition("-")[0].strip() or "0"


def _text(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
