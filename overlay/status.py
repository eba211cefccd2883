"""What is true in each process: read back from the live objects, and left in a file for the command line."""

from __future__ import annotations

import atexit
import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import engine_overlay
from engine_overlay import profile
from engine_overlay.log import logger, one_line

if TYPE_CHECKING:
    from engine_overlay.importer import Overlay

_complained = False
_registered = False


def report(overlay: Overlay | None = None) -> dict[str, Any]:
    """The state of this process as plain data.

    ``{"overlay", "pid", "argv", "way", "mode", "time", "engines": [...], "engine": the first of them or None,
    "profile": its name, "values": {engine: {name: value}} of the engine configs made in this process,
    "patches": [{"id", "engine", "title", "origin", "verdict", "reason", "state", "state_reason", "targets"}],
    "problems": [...]}``. ``way`` is None when the overlay is not in this process.
    """
    if overlay is None:
        from engine_overlay import importer

        overlay = importer.overlay
    data: dict[str, Any] = {
        "overlay": engine_overlay.__version__,
        "pid": os.getpid(),
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
        for i, v in ledger.verdicts.items():
            entry = ledger.entry(i)
            state, why = ledger.state(i)
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
    try:
        (folder(overlay.settings.state_dir) / f"{os.getpid()}.json").unlink(missing_ok=True)
    except OSError:
        pass


def read_all(place: Path) -> list[dict[str, Any]]:
    """The status files of the processes that are still alive; files of dead ones are removed where possible."""
    found = []
    for path in sorted(place.glob("*.json")):
        try:
            data = json.loads(path.read_text(encoding="utf-8"))
            pid = int(data["pid"])
        except (OSError, ValueError, KeyError, TypeError):
            continue
        if _alive(pid):
            found.append(data)
        else:
            try:
                path.unlink()
            except OSError:
                pass
    return found


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True
