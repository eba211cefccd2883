"""Real interpreters, real installations: nothing here is replaced by something that only looks like it."""

from __future__ import annotations

import functools
import json
import os
import shutil
import stat
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
NEEDS = ("packaging>=22", "typer>=0.12", "rich>=12")
"""What the overlay's metadata asks for."""
MINORS = ("3.10", "3.11", "3.12", "3.13")


def clean_environment(**extra: str) -> dict[str, str]:
    """This process's environment without what would reach into another interpreter's start."""
    dropped = ("PYTHON", "ENGINE_OVERLAY", "VIRTUAL_ENV", "COV", "VLLM_", "APHRODITE_")
    return {key: value for key, value in os.environ.items() if not key.startswith(dropped)} | extra


def run(*command: str | Path, **extra: str) -> subprocess.CompletedProcess[str]:
    """Run a command with a clean environment plus ``extra``; the caller looks at the exit code."""
    return subprocess.run(
        [str(part) for part in command],
        env=clean_environment(**extra),
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )


def must(*command: str | Path, **extra: str) -> str:
    """Run a command that has to succeed; returns its standard output."""
    done = run(*command, **extra)
    assert done.returncode == 0, f"{' '.join(map(str, command))}\n{done.stdout}{done.stderr}"
    return done.stdout


def _describe(python: str | Path) -> tuple[str, str] | None:
    ask = "import sys; print('%d.%d' % sys.version_info[:2]); print(sys._base_executable)"
    try:
        done = run(python, "-I", "-c", ask)
    except OSError:
        return None
    return tuple(done.stdout.split("\n")[:2]) if done.returncode == 0 else None  # type: ignore[return-value]


def _candidates() -> Iterator[str | Path]:
    yield sys.executable
    for minor in MINORS:
        for folder in os.environ.get("PATH", "").split(os.pathsep):
            if (found := Path(folder, f"python{minor}")).is_file():
                yield found
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"), "versions")
    yield from sorted(pyenv.glob("*/bin/python3"))
    if uv := find_uv():
        listed = run(uv, "python", "list", "--only-installed", "--offline", "--output-format", "json")
        if listed.returncode == 0:
            yield from (entry["path"] for entry in json.loads(listed.stdout) if entry["path"])


def find_uv() -> str | None:
    """The uv beside this interpreter (``pip install uv``), or the one on PATH."""
    beside = Path(sysconfig.get_path("scripts"), "uv")
    return str(beside) if beside.is_file() else shutil.which("uv")


@functools.cache
def all_interpreters() -> dict[str, list[str]]:
    """Minor version -> base interpreters of it found on this machine."""
    found: dict[str, list[str]] = {}
    for python in _candidates():
        described = _describe(python)
        if described and described[0] in MINORS and described[1] not in found.setdefault(described[0], []):
            found[described[0]].append(described[1])
    return found


@dataclass(frozen=True)
class Built:
    """The two archives of one build of the tree."""

    wheel: Path
    sdist: Path


def _pip_for(python: Path) -> list[str | Path]:
    return [sys.executable, "-m", "pip", "--python", python]


@dataclass
class Environment:
    """A virtual environment with what the overlay needs, which every engine brings, and nothing else."""

    folder: Path
    python: Path
    site: Path
    bystanders: tuple[str, ...] = ()
    before: set[str] = field(default_factory=set)

    @classmethod
    def create(cls, base: str, folder: Path, *, own_pip: bool = True) -> Environment:
        must(base, "-m", "venv", *([] if own_pip else ["--without-pip"]), folder)
        python = folder / "bin" / "python"
        must(*([python, "-m", "pip"] if own_pip else _pip_for(python)), "install", *NEEDS)
        site = Path(must(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip())
        # Reading any .pth file loads a codec on Python 3.13; this one does nothing else.
        (site / "plain.pth").write_text("# nothing\n")
        others = {name.split("-")[0].removesuffix(".py") for name in os.listdir(site)} - {"plain.pth", "__pycache__"}
        environment = cls(folder, python, site, tuple(sorted(others)))
        environment.before = environment.files()
        return environment

    def files(self) -> set[str]:
        """Everything in it, apart from what was there before: pip and others may compile that at any time."""
        names = set()
        for path in self.folder.rglob("*"):
            inside = (
                path.relative_to(self.site).parts[0] if path.is_relative_to(self.site) and path != self.site else ""
            )
            if inside == "__pycache__":
                inside = path.name
            # A folder counts by what is in it.
            if not inside.startswith(self.bystanders) and not path.is_dir():
                names.add(str(path.relative_to(self.folder)))
        return names

    def pip(self, *arguments: str | Path) -> str:
        own = any(self.site.glob("pip-*"))
        return must(*([self.python, "-m", "pip"] if own else _pip_for(self.python)), *arguments)

    def uv(self, *arguments: str | Path) -> str:
        uv = find_uv()
        assert uv, "uv is not here; install the extra: pip install -e '.[dev]'"
        return must(uv, "pip", arguments[0], "--python", self.python, *arguments[1:])

    def idle(self, *flags: str, **extra: str) -> dict:
        """What an interpreter of this environment looks like after its start; its stderr must stay empty."""
        done = run(self.python, *flags, "-c", _IDLE, **extra)
        assert (done.returncode, done.stderr) == (0, ""), done.stderr
        return json.loads(done.stdout)


_IDLE = """\
import sys
modules = sorted(sys.modules)
import functools
import json
waiter = sys.modules.get("_engine_overlay_startup")
print(json.dumps({
    "modules": modules,
    "meta_path": [getattr(f, "__module__", None) or getattr(f, "__name__", "") for f in sys.meta_path],
    "hooks": len(sys.path_hooks),
    "path": sys.path,
    "waiting": sum(f is waiter for f in sys.meta_path),
}))
"""


ENGINE = {
    "__init__.py": 'VALUE = "imported"\n',
    "_version.py": '__version__ = "0.32.0"\n',
    "parser/__init__.py": "",
    "server.py": "import sys\nfrom vllm.cases import report\nprint(report(), *sys.argv[1:])\n",
    "cases.py": """\
import functools
import json
import sys


def report():
    status = sys.modules.get("engine_overlay.status")
    facts = status.report() if status else {"way": None, "engine": None}
    package = sys.modules.get("engine_overlay")
    return json.dumps({
        "way": facts["way"],
        "root": facts["engine"] and facts["engine"]["root"],
        "overlay": package and package.__file__,
        "finders": sum(hasattr(f, "overlay") for f in sys.meta_path),
        "waiting": sum(f is sys.modules.get("_engine_overlay_startup") for f in sys.meta_path),
        "path": sys.path,
    })
""",
}
"""A folder that passes for an engine: enough for the start-up to see it, none of the code that is patched."""


REPORT = "import vllm; from vllm.cases import report; print(report())"
"""A program that imports the engine and prints what the overlay says of itself."""


def script(path: Path, text: str) -> Path:
    path.write_text(text)
    path.chmod(path.stat().st_mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)
    return path
