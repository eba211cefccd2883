"""Runs ``engine-overlay doctor`` as a user does, and picks its findings."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from engine_overlay.verify import releases
from tests.matrix import environment
from tests.patches.releases_of import PLATFORM


class Doctor:
    """One call: its exit code, what it printed, and its findings."""

    def __init__(self, done: subprocess.CompletedProcess[str]) -> None:
        self.code, self.out, self.err = done.returncode, done.stdout, done.stderr

    @property
    def data(self) -> dict[str, Any]:
        assert self.out.startswith("{"), self.out + self.err
        return json.loads(self.out)

    def found(self, subject: str, level: str | None = None) -> list[dict[str, str]]:
        """The findings of a check, of this level."""
        return [f for f in self.data["findings"] if f["subject"] == subject and level in (None, f["level"])]

    def what(self, *levels: str) -> list[str]:
        """``subject: what`` of all findings of these levels."""
        return [f"{f['subject']}: {f['what']}" for f in self.data["findings"] if f["level"] in levels]


def here(path: Path, *arguments: str, timeout: float = 120, **env: str) -> Doctor:
    """With the engines in the folder ``path``, in this environment."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("ENGINE_OVERLAY", "VLLM", "APHRODITE"))}
    clean |= {"PYTHONPATH": str(path), "ENGINE_OVERLAY_STATE_DIR": str(path / "state"), **env}
    command = [sys.executable, "-m", "engine_overlay.cli", "doctor", *arguments]
    return Doctor(subprocess.run(command, env=clean, capture_output=True, text=True, timeout=timeout, check=False))


def on(label: str, *arguments: str, path: Path | None = None, more: Mapping[str, str] | None = None) -> Doctor:
    """On a real release, whose engine chooses its CPU platform; ``path`` comes first on sys.path."""
    release = releases.named(label)
    caches = {f"{e}_CACHE_ROOT": str(releases.cache() / "engine-caches" / label) for e in ("VLLM", "APHRODITE")}
    variables = environment.variables(releases.fetch(release), overlay=True, more=caches | dict(more or {}))
    first = [str(path)] if path is not None else []
    variables["PYTHONPATH"] = os.pathsep.join([*first, variables["PYTHONPATH"], str(PLATFORM)])
    return Doctor(environment.call(["-m", "engine_overlay.cli", "doctor", *arguments], variables))
