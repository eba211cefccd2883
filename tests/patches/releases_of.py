"""Runs of a module in a process of each release, kept until something they depend on changes."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from engine_overlay.verify import releases
from tests.matrix import environment, store

PLATFORM = environment.ROOT / "tests" / "serving" / "platform"


def run(
    chosen: Iterable[releases.Release],
    module: str,
    arguments: Iterable[str] = (),
    more: Mapping[str, str] | None = None,
) -> dict[str, dict[str, Any]]:
    """What ``python -m module [argument ...] FILE`` left in FILE on each release, by label; two at a time.

    ``more`` are environment variables. The engine chooses its CPU platform. Raises store.RunFailed that says what each
    failed process wrote last.
    """
    arguments = list(arguments)
    own = environment.ROOT.joinpath(*module.split(".")).with_suffix(".py")
    folder = f"{module.removeprefix('tests.')}-{store.key([own, *store.overlay_files()])}"

    def compute(release: releases.Release) -> dict[str, Any]:
        # Releases must not share the engine's caches; kept, they save the inspection of the model in a process.
        place = releases.cache() / "engine-caches" / release.label
        caches = {f"{engine}_CACHE_ROOT": str(place) for engine in ("VLLM", "APHRODITE")}
        variables = environment.variables(release.sources, overlay=True, more=caches | dict(more or {}))
        variables["PYTHONPATH"] += os.pathsep + str(PLATFORM)
        with tempfile.TemporaryDirectory() as temporary:
            out = Path(temporary) / "out.json"
            done = environment.call(["-m", module, *arguments, str(out)], variables, together=True)
            if not out.is_file():
                said = "\n".join(done.stdout.splitlines()[-30:])
                raise RuntimeError(f"exit status {done.returncode}\n{said}")
            return json.loads(out.read_text(encoding="utf-8")) | {"output": done.stdout}

    return store.all_of(chosen, folder, compute, lambda found: module, print)
