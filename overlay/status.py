"""What is true in each process: read back from the live objects, and left in a file for the command line."""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import engine_overlay
from engine_overlay import live, profile, reach, verdict
from engine_overlay.log import logger, one_line

if TYPE_CHECKING:
    from engine_overlay.importer import Overlay

_complained = False
_registered = False


def report(overlay: Overlay | None = None) -> dict[str, Any]:
    """The state of this process as plain data.

    ``{"overlay", "pid", "role", "argv", "way", "mode", "time", "engines": [...], "engine": the first of them or None,
    "profile": its name, "values": {engine: {name: value}} of the engine configs made in this process,
    "patches": [{"id", "engine", "title", "origin", "verdict", "reason", "state", "state_reason", "loaded",
    "path", "scope", "targets"}], "problems": [...]}``. ``way`` is None when the overlay is not in this process.
    ``role``: see :func:`engine_overlay.reach.role`. ``state`` is ``loaded``, the state of the live functions, unless
    requests do not meet them here: then it is "out of path", and ``path`` is one of :data:`engine_overlay.reach.WAYS`.
    """
    if overlay is None:
        from engine_overlay import importer

        overlay = importer.overlay
    data: dict[str, Any] = {
        "overlay": engine_overlay.__version__,
        "pid": os.getpid(),
        "role": reach.role(),
        "argv": list(getattr(sys, "orig_argv", sys.argv)),
        "time": round(time.time(), 3),
        "way": overlay.way if overlay else None,
        "mode": overlay.settings.mode if overlay else None,
        "engines": [],
        "engine": None,
        "profile": overlay.settings.profile if overlay else None,
        "values": profile.noted(),
        "patches": [],
        "problems": list(overlay.problems) if overlay else [],
    }
    for name, ledger in sorted(overlay.ledgers.items()) if overlay else ():
        engine = ledger.engine
        data["engines"].append(
            {"name": name, "version": engine.version, "distribution": engine.distribution, "root": str(engine.root)}
        )
        place = reach.here(engine)
        data["role"] = place.name
        for i, v in ledger.verdicts.items():
            entry = ledger.entry(i)
            loaded, why = ledger.state(i)
            state, way = loaded, entry.way(place)
            if v.code == verdict.APPLY and way.out and loaded != "undone":
                state, why = reach.OUT_OF_PATH, str(way)
            data["patches"].append(
                {
                    "id": i,
                    "engine": name,
                    "title": entry.title,
                    "origin": entry.origin,
                    "verdict": v.code,
                    "reason": v.reason,
                    "state": state,
                    "state_reason": why,
                    "loaded": loaded,
                    "path": way.word if v.code == verdict.APPLY else "",
                    "scope": list(entry.patch.scope),
                    "targets": [f"{name}.{t.module}:{t.qualname}" for t in entry.patch.targets],
                }
            )
    data["engine"] = data["engines"][0] if data["engines"] else None
    return data


def folder(wanted: Path | None = None) -> Path:
    """Where status files lie: ``ENGINE_OVERLAY_STATE_DIR``, else a folder of this user in the temporary directory."""
    if wanted is not None:
        return wanted
    user = os.getuid() if hasattr(os, "getuid") else "user"
    return Path(tempfile.gettempdir()) / f"engine-overlay-{user}"


def places() -> tuple[list[Path], list[Path]]:
    """The default folders of every user whose processes can be read here, this user's first; and those that cannot."""
    mine = folder()
    others = sorted(p for p in mine.parent.glob("engine-overlay-*") if p != mine and p.name[15:].isdigit())
    readable = [place for place in others if os.access(place, os.R_OK | os.X_OK)]
    return [mine, *readable], [place for place in others if place not in readable]


def write(overlay: Overlay) -> None:
    """Write this process's status file. A folder that cannot be written is said once and changes nothing else."""
    global _complained
    try:
        place = folder(overlay.settings.state_dir)
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
        if hasattr(os, "getuid") and overlay.settings.state_dir is None and place.stat().st_uid != os.getuid():
            raise PermissionError(f"{place} belongs to another user")
        path = place / f"{os.getpid()}.json"
        part = path.with_suffix(f".{os.getpid()}.part")
        part.write_text(json.dumps(report(overlay), indent=1), encoding="utf-8")
        part.replace(path)
        _register(overlay)
        # Where no socket can be made the file has to do.
        with contextlib.suppress(OSError):
            live.listen(place, lambda: report(overlay))
    except Exception as error:
        if not _complained:
            _complained = True
            logger.warning(
                "status file: cannot be written (%s); patches are not affected, set ENGINE_OVERLAY_STATE_DIR to "
                "a folder that this user can write",
                one_line(error),
            )


def _register(overlay: Overlay) -> None:
    global _registered
    if _registered:
        return
    _registered = True
    atexit.register(_remove, overlay)
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=lambda: write(overlay))


def _remove(overlay: Overlay) -> None:
    live.stop()
    with contextlib.suppress(OSError):
        (folder(overlay.settings.state_dir) / f"{os.getpid()}.json").unlink(missing_ok=True)


def read_all(place: Path) -> list[dict[str, Any]]:
    """What the processes that are still alive say now; files of dead ones are removed where possible.

    ``"live"`` in a report says whether the process itself answered; else it is what it wrote last.
    """
    found = []
    for path in sorted(place.glob("*.json")):
        try:
            data = json.loads(path.read_text(encoding="utf-8"))
            pid = int(data["pid"])
        except (OSError, ValueError, KeyError, TypeError):
            continue
        if _alive(pid):
            now = live.ask(place, pid)
            answers = isinstance(now, dict)
            found.append({**(now if answers else data), "pid": pid, "live": answers})
        else:
            for gone in (path, live.path_of(place, pid)):
                with contextlib.suppress(OSError):
                    gone.unlink(missing_ok=True)
    return found


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True
