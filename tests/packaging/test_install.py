"""Every way to install it, with pip and uv, on every Python of this machine."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from .support import REPORT, Built, Environment, find_uv, must, run

pytestmark = pytest.mark.packaging

IMPORTS = """
import importlib, importlib.metadata, importlib.util, json
found = {}
for name in ("engine_overlay", "engine_overlay.patches", "engine_overlay.patches.parsing",
             "engine_overlay.cli.main", "_engine_overlay_startup"):
    found[name] = importlib.import_module(name).__file__
entries = importlib.metadata.distribution("engine-overlay").entry_points
print(json.dumps({
    "files": found,
    "strays": [n for n in ("overlay", "patches", "build_startup", "sitecustomize_hooks")
               if importlib.util.find_spec(n)],
    "entries": sorted((e.group, e.value) for e in entries if e.load()),
}))
"""

ENTRIES = [
    ["aphrodite.general_plugins", "_engine_overlay_startup:load"],
    ["console_scripts", "engine_overlay.cli.main:main"],
    ["vllm.general_plugins", "_engine_overlay_startup:load"],
]


@pytest.mark.parametrize("tool", ["pip", "uv"])
@pytest.mark.parametrize("kind", ["wheel", "sdist", "folder", "editable"])
def test_install_start_switch_off_and_uninstall(
    kind: str, tool: str, environment: Environment, built: Built, source: Path, engine: Path
) -> None:
    if tool == "uv" and not find_uv():
        pytest.skip("uv is not on this machine; pip install -e '.[dev]' brings it")
    without = environment.idle()
    what: dict[str, list] = {
        "wheel": [built.wheel],
        "sdist": [built.sdist],
        "folder": [source],
        "editable": ["-e", source],
    }
    install = environment.pip if tool == "pip" else environment.uv
    install("install", *what[kind])
    try:
        check(environment, engine, without, editable=source if kind == "editable" else None)
    finally:
        if tool == "pip":
            environment.pip("uninstall", "-y", "engine-overlay")
        else:
            environment.uv("uninstall", "engine-overlay")
    # uv keeps a lock file of its own, and the compiled file of setuptools' editable finder.
    left = environment.files() - environment.before - {".lock"}
    assert [n for n in left if not (tool == "uv" and "__editable__" in n and n.endswith(".pyc"))] == []
    assert environment.before <= environment.files()
    for name in left:
        (environment.folder / name).unlink()
    assert environment.idle() == without


def check(environment: Environment, engine: Path, without: dict, editable: Path | None) -> None:
    for flags in ([], ["-I"], ["-E"], ["-s"], ["-O", "-B"], ["-bb", "-W", "error"]):
        idle = environment.idle(*flags)
        assert idle["waiting"] == 1, flags
    idle = environment.idle()
    if editable is None:
        # Idle, this is all there is of us.
        assert set(idle["modules"]) - set(without["modules"]) == {"_engine_overlay_startup"}
        assert idle["meta_path"] == ["_engine_overlay_startup", *without["meta_path"]]
        assert idle["path"] == without["path"]
    assert environment.idle("-S")["waiting"] == 0

    for flags in ([], ["-I"]):
        off = environment.idle(*flags, ENGINE_OVERLAY="off")
        assert [name for name in off["modules"] if "engine_overlay" in name and "editable" not in name] == []
        if editable is None and not flags:
            assert off == without
        # Any other spelling costs the start-up module, which then does nothing.
        off = environment.idle(*flags, ENGINE_OVERLAY=" Off ")
        assert off["waiting"] == 0
        assert "engine_overlay" not in off["modules"]

    facts = json.loads(must(environment.python, "-I", "-c", IMPORTS))
    assert facts["strays"] == []
    assert facts["entries"] == ENTRIES
    home = editable / "overlay" if editable else environment.site / "engine_overlay"
    assert Path(facts["files"]["engine_overlay"]).parent == home
    patches = editable / "patches" if editable else home / "patches"
    assert Path(facts["files"]["engine_overlay.patches"]).parent == patches

    for flags in ([], ["-I"]):
        code = f"import sys; sys.path.insert(0, {str(engine)!r}); {REPORT}"
        done = run(environment.python, *flags, "-c", code, ENGINE_OVERLAY_LOG="quiet")
        assert (done.returncode, done.stderr) == (0, ""), done.stderr
        report = json.loads(done.stdout)
        assert (report["way"], report["root"]) == ("startup", str(engine / "vllm"))
        assert (report["waiting"], report["finders"]) == (0, 1)

    done = run(environment.folder / "bin" / "engine-overlay", "--version")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("engine-overlay ")
    done = run(environment.folder / "bin" / "engine-overlay", "list", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["problems"] == []


@pytest.mark.parametrize("command", ["--help", "plan --help", "parity --help", "new --help", "list --area tools"])
def test_commands_on_every_python(command: str, installed: Environment) -> None:
    done = run(installed.folder / "bin" / "engine-overlay", *command.split())
    assert (done.returncode, done.stderr) == (0, "")


def test_pep_829_names_a_callable(installed: Environment) -> None:
    """Python 3.15 resolves the line of engine_overlay.start like this and calls it without arguments."""
    code = """
import pathlib, pkgutil, sys
(line,) = [l for l in pathlib.Path(sys.argv[1]).read_text().splitlines() if l and l[0] != "#"]
function = pkgutil.resolve_name(line)
function(); function()
print(sum(f is sys.modules["_engine_overlay_startup"] for f in sys.meta_path))
"""
    file = installed.site / "engine_overlay.start"
    assert (
        must(installed.python, "-S", "-c", f"import sys; sys.path.append({str(installed.site)!r}){code}", file) == "1\n"
    )
    off = f"import sys; sys.path.append({str(installed.site)!r}){code}"
    assert must(installed.python, "-S", "-c", off, file, ENGINE_OVERLAY="off") == "0\n"
