"""What the archives hold, compared with the folders they are made of."""

from __future__ import annotations

import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from .support import ROOT, Built, must

if sys.version_info >= (3, 11):
    import tomllib
else:
    tomllib = pytest.importorskip("tomli")


def project() -> dict:
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def packages_of(folder: str, name: str) -> set[str]:
    found = set()
    for file in (ROOT / folder).rglob("*.py"):
        inside = file.parent.relative_to(ROOT / folder).parts
        found.add(".".join((name, *inside)))
    return found


def test_every_folder_with_code_is_listed_as_a_package_and_no_other() -> None:
    listed = project()["tool"]["setuptools"]["packages"]
    assert len(listed) == len(set(listed))
    folders = packages_of("overlay", "engine_overlay") | packages_of("patches", "engine_overlay.patches")
    assert set(listed) == folders | {"_engine_overlay_startup", "engine_overlay.verify.data"}


@pytest.mark.parametrize("folder", ["overlay", "patches"])
def test_every_package_has_an_init_file(folder: str) -> None:
    without = [p.parent for p in (ROOT / folder).rglob("*.py") if not (p.parent / "__init__.py").is_file()]
    assert without == []


def test_the_version_is_the_same_in_both_places() -> None:
    namespace: dict = {}
    exec((ROOT / "overlay" / "__init__.py").read_text(encoding="utf-8"), namespace)
    assert namespace["__version__"] == project()["project"]["version"]


def test_the_startup_line_is_one_line_and_the_same_stem_has_a_start_file() -> None:
    pth = (ROOT / "sitecustomize_hooks" / "engine_overlay.pth").read_text(encoding="utf-8")
    # site executes a line only when it begins with import and a blank.
    assert pth.startswith("import ")
    assert pth.count("\n") == 1
    start = (ROOT / "sitecustomize_hooks" / "engine_overlay.start").read_text(encoding="utf-8")
    entries = [line for line in start.splitlines() if line and not line.startswith("#")]
    assert entries == ["_engine_overlay_startup:start"]


@pytest.mark.packaging
def test_the_wheel_holds_every_source_file_and_the_startup_files_at_its_root(built: Built, source: Path) -> None:
    startup = {"_engine_overlay_startup/__init__.py", "_engine_overlay_startup/door.py"}
    expected = startup | {"engine_overlay.pth", "engine_overlay.start"}
    expected |= {f"engine_overlay/_launcher/{name}" for name in startup | {"sitecustomize.py"}}
    mapped = {"overlay": "engine_overlay", "patches": "engine_overlay/patches"}
    for folder, target in (mapped | {"tests/cases": "engine_overlay/verify/data"}).items():
        for file in (source / folder).rglob("*"):
            if file.is_file() and "__pycache__" not in file.parts:
                expected.add(f"{target}/{file.relative_to(source / folder).as_posix()}")
    with zipfile.ZipFile(built.wheel) as wheel:
        names = {name for name in wheel.namelist() if ".dist-info/" not in name}
    assert names == expected


@pytest.mark.packaging
def test_the_wheel_built_from_the_sdist_is_the_wheel_built_from_the_tree(built: Built, tmp_path: Path) -> None:
    with tarfile.open(built.sdist) as archive:
        archive.extractall(tmp_path)
    (folder,) = tmp_path.iterdir()
    must(sys.executable, "-m", "pip", "wheel", "--no-deps", "--wheel-dir", tmp_path / "out", folder)
    (again,) = (tmp_path / "out").glob("*.whl")

    def contents(path: Path) -> dict[str, bytes]:
        with zipfile.ZipFile(path) as wheel:
            return {name: wheel.read(name) for name in wheel.namelist()}

    assert contents(again) == contents(built.wheel)


@pytest.mark.packaging
def test_a_deleted_patch_is_gone_from_the_next_wheel_of_the_same_checkout(source: Path, tmp_path: Path) -> None:
    import shutil

    tree = tmp_path / "tree"
    shutil.copytree(source, tree)
    gone = tree / "patches" / "parsing" / "soon_deleted.py"
    gone.write_text('"""Here for one build."""\n')

    def wheel(out: Path) -> set[str]:
        must(sys.executable, "-m", "build", "--wheel", "--outdir", out, tree)
        with zipfile.ZipFile(next(out.glob("*.whl"))) as built:
            return set(built.namelist())

    name = "engine_overlay/patches/parsing/soon_deleted.py"
    assert name in wheel(tmp_path / "first")
    gone.unlink()
    assert name not in wheel(tmp_path / "second")
