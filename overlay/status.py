"""What is true in each process: read back from the live objects, and left in a file for the command line."""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

import engine_overlay
from engine_overlay import identity, live, profile, reach, reading, redact, verdict
from engine_overlay.log import logger, one_line
from engine_overlay.statefolder import Folder

if TYPE_CHECKING:
    from engine_overlay.importer import Overlay

_complained = False
_registered = False
_told: list[Overlay] = []
"""The overlay, when multiprocessing was told to call it in its children."""


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
        "argv": redact.words(getattr(sys, "orig_argv", sys.argv)),
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


def write(overlay: Overlay) -> None:
    """Write this process's status file. A folder that cannot be written is said once and changes nothing else."""
    global _complained
    try:
        _register(overlay)
        with _open(overlay, make=True) as folder:
            stem = str(identity.this())
            folder.write(f"{stem}.json", json.dumps(report(overlay), indent=1).encode())
            # Where no socket can be made the file has to do.
            with contextlib.suppress(OSError):
                live.listen(folder, stem, lambda: report(overlay))
    except Exception as error:
        if not _complained:
            _complained = True
            logger.warning(
                "status file: cannot be written (%s); patches are not affected, set ENGINE_OVERLAY_STATE_DIR to "
                "a folder that this user can write",
                one_line(error),
            )


def _open(overlay: Overlay, *, make: bool = False) -> Folder:
    """The folder of this process: the one that was named, else this user's own, which nobody else may write to."""
    wanted = overlay.settings.state_dir
    if wanted is not None:
        return Folder.open(wanted, make=make)
    return Folder.open(reading.default_folder(), owner=os.geteuid(), make=make)


def _register(overlay: Overlay) -> None:
    global _registered
    if _registered:
        return
    _registered = True
    atexit.register(_remove, overlay)
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=lambda: _forked(overlay))


def _forked(overlay: Overlay) -> None:
    """In a child that was forked off: next to nothing, as it may become another program at once.

    It writes when it patches or decides something. multiprocessing calls :func:`_started` in the children that it
    forks, when they have their names.
    """
    live.forked()
    util = sys.modules.get("multiprocessing.util")
    if util is not None and overlay not in _told:
        _told.append(overlay)
        util.register_after_fork(overlay, _started)


def _started(overlay: Overlay) -> None:
    """In a child of multiprocessing: one that an engine named reports at once; a thread does it, so nobody waits."""
    if reach.is_engine_process():
        threading.Thread(target=_write_in_child, args=(overlay,), name="engine-overlay-status", daemon=True).start()


def _write_in_child(overlay: Overlay) -> None:
    # Such a child ends without what atexit holds.
    sys.modules["multiprocessing.util"].Finalize(None, _remove, args=(overlay,), exitpriority=0)
    write(overlay)


def _remove(overlay: Overlay) -> None:
    """Take this process's own files away, whatever it has inherited."""
    with contextlib.suppress(OSError), _open(overlay) as folder:
        for suffix in ("json", "sock"):
            folder.remove(f"{identity.this()}.{suffix}")
