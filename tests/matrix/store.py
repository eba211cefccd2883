"""Results of releases, kept in the cache under a hash of everything they depend on, and computed two at a
time.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from engine_overlay.verify import releases
from tests.matrix import environment

AT_ONCE = int(os.environ.get("OVERLAY_JOBS", "2"))
"""Releases at a time (``OVERLAY_JOBS``); each keeps one core busy and takes up to a gigabyte."""

Result = dict[str, Any]
Tell = Callable[[str], None]


def overlay_files() -> list[Path]:
    """Every file of this checkout that the overlay in the engine environment is made of."""
    root = environment.ROOT
    files = [root / "pyproject.toml"]
    for folder in ("overlay", "patches", "sitecustomize_hooks"):
        files += sorted(
            path for path in (root / folder).rglob("*") if path.suffix in (".py", ".pth", ".start")
        )
    return files


def key(files: Iterable[Path]) -> str:
    """Hash of names and contents of the files, and of the environment's requirements."""
    digest = hashlib.sha256()
    for file in (environment.REQUIREMENTS, *files):
        digest.update(f"{file.relative_to(environment.ROOT)}\0".encode() + file.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


def write(path: Path, data: Any) -> None:
    """Write JSON so that the file is there whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(".part")
    part.write_text(json.dumps(data, ensure_ascii=False, indent=1), encoding="utf-8")
    part.replace(path)


def place(folder: str, release: releases.Release) -> Path:
    return releases.cache() / "results" / folder / f"{release.label}.json"


def kept(folder: str, release: releases.Release, compute: Callable[[], Result]) -> Result:
    """The result in ``folder``, computed and written when it is not there."""
    file = place(folder, release)
    file.parent.mkdir(parents=True, exist_ok=True)
    # Parts of a run ask for the same one at a time: the second waits for what the first computes.
    with file.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not file.is_file():
            write(file, compute())
    return json.loads(file.read_text(encoding="utf-8"))


class RunFailed(RuntimeError):
    """Some releases gave no result; carries what each said. The results of the others are kept."""


def all_of(
    chosen: Iterable[releases.Release],
    folder: str,
    compute: Callable[[releases.Release], Result],
    summary: Callable[[Result], str],
    tell: Tell = lambda line: None,
) -> dict[str, Result]:
    """The results of the releases by label; ``tell`` gets one line for each. Raises RunFailed after the last."""
    chosen = list(chosen)
    environment.python()
    releases.fetch_all([release for release in chosen if not release.sources.is_dir()])
    failed: list[str] = []

    def measured(release: releases.Release) -> Result:
        start = time.monotonic()
        try:
            found = kept(folder, release, lambda: compute(release))
        except Exception as error:
            failed.append(f"{release.label}: {error}")
            tell(f"{release.label}: failed")
            return {}
        tell(f"{summary(found)} ({time.monotonic() - start:.0f} s)")
        return found

    with ThreadPoolExecutor(AT_ONCE) as pool:
        found = dict(zip((release.label for release in chosen), pool.map(measured, chosen), strict=True))
    if failed:
        raise RunFailed("\n".join(failed))
    return found
