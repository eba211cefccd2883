"""The one Python environment in which every engine release runs, with the overlay of this checkout in it.

    python -m tests.matrix.environment           make or update it and print its interpreter

It lies in the cache as ``env``, holds the engines' dependencies (requirements.txt) but no engine, and this
checkout in editable mode, so that the overlay comes in through its start-up file as at a user's. A release
is chosen by putting its sources on PYTHONPATH. It is made anew when requirements.txt changes.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import venv
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from engine_overlay.verify.releases import cache

ROOT = Path(__file__).resolve().parent.parent.parent
REQUIREMENTS = Path(__file__).with_name("requirements.txt")


def python() -> Path:
    """The interpreter of the environment, which is made first when it is missing or out of date."""
    folder = cache() / "env"
    interpreter = folder / "bin" / "python"
    with _alone():
        wanted = digest(REQUIREMENTS, text=sys.version_info[:2])
        if _stamp(folder / "requirements.stamp") != wanted:
            _make(folder, interpreter)
            (folder / "requirements.stamp").write_text(wanted, encoding="utf-8")
        hooks = [path for path in sorted((ROOT / "sitecustomize_hooks").iterdir()) if path.is_file()]
        package = digest(ROOT / "pyproject.toml", *hooks, text=ROOT)
        if _stamp(folder / "overlay.stamp") != package:
            _install_overlay(interpreter)
            (folder / "overlay.stamp").write_text(package, encoding="utf-8")
    return interpreter


def _make(folder: Path, interpreter: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    venv.create(folder, with_pip=True)
    # Without --no-deps the resolver would look for versions that suit all of them; every pin is there
    # already.
    pip = [str(interpreter), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
    subprocess.run([*pip, "--requirement", str(REQUIREMENTS)], check=True)


def _install_overlay(interpreter: Path) -> None:
    pip = [str(interpreter), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
    subprocess.run([*pip, "--no-build-isolation", "--editable", str(ROOT)], check=True)


def variables(
    sources: Path | None, *, overlay: bool, more: Mapping[str, str] | None = None
) -> dict[str, str]:
    """The environment variables of a process of the release in ``sources``: the user's own, without
    ENGINE_OVERLAY* and PYTHON*.
    """
    # PYTHONDONTWRITEBYTECODE in particular would make every start compile 4,000 modules: 25 s of CPU, not 7.
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("ENGINE_OVERLAY", "PYTHON"))}
    # The checkout comes last, so that `tests` is found and nothing of an engine is shadowed.
    kept["PYTHONPATH"] = os.pathsep.join(str(path) for path in (sources, ROOT) if path is not None)
    kept["PYTHONPYCACHEPREFIX"] = str(cache() / "pycache")
    kept["ENGINE_OVERLAY"] = "on" if overlay else "off"
    kept["ENGINE_OVERLAY_STATE_DIR"] = str(cache() / "status")
    kept["ENGINE_OVERLAY_LOG"] = "quiet"
    for engine in ("VLLM", "APHRODITE"):
        kept |= {
            f"{engine}_NO_USAGE_STATS": "1",
            f"{engine}_TARGET_DEVICE": "cpu",
            f"{engine}_LOGGING_LEVEL": "ERROR",
        }
    kept |= {
        "HF_HUB_OFFLINE": "1",
        "DO_NOT_TRACK": "1",
        "TOKENIZERS_PARALLELISM": "false",
        "OMP_NUM_THREADS": "1",
    }
    return kept | dict(more or {})


def run(
    arguments: Sequence[str],
    sources: Path,
    *,
    overlay: bool,
    check: bool = False,
    quiet: bool = True,
    more: Mapping[str, str] | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run the environment's interpreter with ``arguments`` in the checkout, on the release in ``sources``.

    ``more`` are further environment variables.
    ``check`` raises CalledProcessError after printing the end of what the process wrote.
    """
    done = subprocess.run(
        [str(python()), *arguments],
        cwd=ROOT,
        env=variables(sources, overlay=overlay, more=more),
        text=True,
        stdout=subprocess.PIPE if quiet else None,
        stderr=subprocess.STDOUT if quiet else None,
    )
    if check and done.returncode:
        print("\n".join((done.stdout or "").splitlines()[-30:]), file=sys.stderr)
        done.check_returncode()
    return done


@contextmanager
def _alone() -> Iterator[None]:
    """One process at a time makes or changes the environment."""
    cache().mkdir(parents=True, exist_ok=True)
    with (cache() / "env.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _stamp(path: Path) -> str | None:
    return path.read_text(encoding="utf-8") if path.is_file() else None


def digest(*files: Path, text: object = "") -> str:
    """Hash of a text and of the contents of files."""
    found = hashlib.sha256(str(text).encode())
    for file in files:
        found.update(file.read_bytes())
    return found.hexdigest()


if __name__ == "__main__":
    print(python())
