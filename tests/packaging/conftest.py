"""One build and one environment a Python for all tests here."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import EVERY

from .support import ENGINE, MINORS, ROOT, Built, Environment, all_interpreters, must

SOURCES = ("pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md", "VERSIONS.md")
SOURCE_FOLDERS = ("overlay", "patches", "sitecustomize_hooks", "tests/cases")


@pytest.fixture(scope="session")
def interpreters() -> dict[str, list[str]]:
    found = all_interpreters()
    assert found, f"no Python of {', '.join(MINORS)} on this machine"
    return found


@pytest.fixture(scope="session", params=MINORS)
def minor(request: pytest.FixtureRequest, interpreters: dict[str, list[str]]) -> str:
    if request.param not in interpreters:
        pytest.skip(f"Python {request.param} is not on this machine")
    here = [minor for minor in MINORS if minor in interpreters]
    if not EVERY and request.param not in (here[0], here[-1]):
        pytest.skip("make test takes the oldest and the newest Python that is here")
    return request.param


@pytest.fixture(scope="session")
def work() -> Iterator[Path]:
    """A folder that every user may read: pytest's own is for its user only."""
    folder = Path(tempfile.mkdtemp(prefix="engine-overlay-packaging-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def source(work: Path) -> Path:
    """A copy of what is packaged, so that no build leaves anything in the checkout."""
    target = work / "source"
    target.mkdir()
    for name in SOURCES:
        if (ROOT / name).is_file():
            shutil.copy(ROOT / name, target / name)
    for name in SOURCE_FOLDERS:
        shutil.copytree(ROOT / name, target / name, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    return target


@pytest.fixture(scope="session")
def built(source: Path, work: Path) -> Built:
    copy = work / "source-to-build"
    shutil.copytree(source, copy)
    must(sys.executable, "-m", "build", "--sdist", "--wheel", "--outdir", work / "dist", copy)
    (wheel,) = (work / "dist").glob("*.whl")
    (sdist,) = (work / "dist").glob("*.tar.gz")
    return Built(wheel, sdist)


@pytest.fixture(scope="session")
def environment(minor: str, interpreters: dict[str, list[str]], work: Path) -> Environment:
    """One environment a Python, shared; each test leaves it as it found it."""
    return Environment.create(interpreters[minor][0], work / f"env-{minor}")


@pytest.fixture(scope="session")
def installed(minor: str, interpreters: dict[str, list[str]], work: Path, built: Built) -> Environment:
    """One environment a Python with the wheel in it, for tests that do not change it."""
    environment = Environment.create(interpreters[minor][0], work / f"installed-{minor}", own_pip=False)
    environment.pip("install", "--no-deps", built.wheel)
    return environment


@pytest.fixture(scope="session")
def engine(work: Path) -> Path:
    """A folder for ``sys.path`` that holds a package called vllm."""
    folder = work / "engine"
    for name, text in ENGINE.items():
        file = folder / "vllm" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return folder
