"""The start-up file in a real interpreter: idle, awake, broken, read-only, twice, and among threads."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from .support import REPORT, Built, Environment, all_interpreters, clean_environment, must, run

pytestmark = pytest.mark.packaging


@pytest.fixture
def package(installed: Environment) -> Iterator[Path]:
    """The installed package's folder; whatever a test does to it is undone."""
    folder = installed.site / "engine_overlay"
    kept = installed.site.parent / "engine_overlay.kept"
    shutil.copytree(folder, kept)
    yield folder
    shutil.rmtree(folder, ignore_errors=True)
    kept.rename(folder)


def one_line(stderr: str) -> str:
    lines = stderr.splitlines()
    assert len(lines) == 1, stderr
    assert lines[0].startswith("engine-overlay: ")
    return lines[0]


def test_run_twice_starts_once(installed: Environment, engine: Path) -> None:
    code = f"""
import site, sys
site.addsitedir({str(installed.site)!r}, set())
__import__("_engine_overlay_startup").start()
assert sum(f is sys.modules["_engine_overlay_startup"] for f in sys.meta_path) == 1
{REPORT}
site.addsitedir({str(installed.site)!r}, set())
assert sys.modules["_engine_overlay_startup"] not in sys.meta_path
"""
    done = run(installed.python, "-c", code, PYTHONPATH=str(engine), ENGINE_OVERLAY_LOG="quiet")
    assert (done.returncode, done.stderr) == (0, "")
    report = json.loads(done.stdout)
    assert (report["way"], report["finders"]) == ("startup", 1)


def test_looking_for_an_engine_loads_nothing(installed: Environment, engine: Path) -> None:
    code = """
import importlib.util, sys
print(importlib.util.find_spec(sys.argv[1]) is not None, "engine_overlay" in sys.modules)
"""
    for name, there in (("vllm", "True"), ("aphrodite", "False")):
        out = must(installed.python, "-c", code, name, PYTHONPATH=str(engine))
        assert out == f"{there} False\n"


def test_an_engine_that_is_not_there_fails_as_always(installed: Environment) -> None:
    code = """
import sys
try:
    import vllm
except ModuleNotFoundError as error:
    print(error, error.name, "engine_overlay" in sys.modules)
"""
    assert must(installed.python, "-c", code) == "No module named 'vllm' vllm False\n"


def test_the_engine_module_keeps_its_own_loader(installed: Environment, engine: Path) -> None:
    code = """
import copy, importlib.util, inspect, sys
spec = importlib.util.find_spec("vllm")
copy.copy(spec.loader)
assert spec.loader.get_source("vllm") == open(spec.origin).read()
import vllm
assert type(vllm.__loader__) is type(vllm.__spec__.loader) is type(inspect.__loader__)
assert inspect.getsource(vllm)
"""
    must(installed.python, "-c", code, PYTHONPATH=str(engine), ENGINE_OVERLAY_LOG="quiet")


def test_the_overlay_deleted_and_the_startup_file_left(installed: Environment, package: Path, engine: Path) -> None:
    shutil.rmtree(package)
    assert installed.idle()["waiting"] == 1
    done = run(installed.python, "-c", "import vllm; print(vllm.VALUE)", PYTHONPATH=str(engine))
    assert (done.returncode, done.stdout) == (0, "imported\n")
    assert "No module named 'engine_overlay'" in one_line(done.stderr)


@pytest.mark.parametrize("statement", ["raise ValueError('two\\nlines')", "def broken(:", "import no_such_module"])
@pytest.mark.parametrize("file", ["__init__.py", "importer.py"])
def test_an_overlay_that_cannot_be_imported(
    installed: Environment, package: Path, engine: Path, file: str, statement: str
) -> None:
    (package / file).write_text(statement + "\n")
    code = "import vllm; print(vllm.VALUE); import vllm.parser"
    done = run(installed.python, "-c", code, PYTHONPATH=str(engine))
    assert (done.returncode, done.stdout) == (0, "imported\n")
    assert "the engine runs unpatched" in one_line(done.stderr)


def test_an_overlay_whose_start_raises(installed: Environment, package: Path, engine: Path) -> None:
    with (package / "importer.py").open("a") as file:
        file.write("\ndef install(*_):\n    raise RuntimeError('at start')\n")
    done = run(installed.python, "-c", "import vllm; print(vllm.VALUE)", PYTHONPATH=str(engine))
    assert (done.returncode, done.stdout) == (0, "imported\n")
    assert "RuntimeError: at start" in one_line(done.stderr)


@pytest.mark.parametrize("close", ["import os; os.close(2)", "import sys; sys.stderr = None"])
def test_a_broken_overlay_without_a_stderr(installed: Environment, package: Path, engine: Path, close: str) -> None:
    shutil.rmtree(package)
    done = run(installed.python, "-c", f"{close}; import vllm; print(vllm.VALUE)", PYTHONPATH=str(engine))
    assert done.stdout == "imported\n"


def test_strict_refuses_when_the_overlay_is_broken(installed: Environment, package: Path, engine: Path) -> None:
    shutil.rmtree(package)
    code = """
for attempt in range(2):
    try:
        import vllm
    except ImportError as error:
        print(error)
"""
    out = must(installed.python, "-c", code, PYTHONPATH=str(engine), ENGINE_OVERLAY="strict")
    lines = out.splitlines()
    assert len(lines) == 2
    assert all("refusing to start" in line for line in lines)


def test_strict_refuses_an_engine_that_cannot_be_patched(installed: Environment, engine: Path) -> None:
    code = """
for attempt in range(2):
    try:
        import vllm
    except ImportError as error:
        print(type(error).__module__, type(error).__name__, error)
"""
    environ = {"PYTHONPATH": str(engine), "ENGINE_OVERLAY_LOG": "quiet"}
    lines = must(installed.python, "-c", code, **environ, ENGINE_OVERLAY="strict").splitlines()
    assert len(lines) == 2
    assert all(line.startswith("engine_overlay.importer Refused engine-overlay: ") for line in lines)
    assert must(installed.python, "-c", code, **environ) == ""


@pytest.mark.parametrize(("word", "loaded"), [("off", []), (" Off ", ["_engine_overlay_startup"])])
def test_off_imports_the_engine_without_us(installed: Environment, engine: Path, word: str, loaded: list[str]) -> None:
    code = "import vllm, sys; print([n for n in sys.modules if 'engine_overlay' in n])"
    done = run(installed.python, "-c", code, PYTHONPATH=str(engine), ENGINE_OVERLAY=word)
    assert (done.stdout, done.stderr) == (f"{loaded}\n", "")


def test_a_patch_that_another_thread_is_importing_is_waited_for(
    installed: Environment, engine: Path, tmp_path: Path
) -> None:
    """The engine's import must not hold the import lock while it loads patches: that would be a deadlock."""
    (tmp_path / "slow_patch.py").write_text("import time\ntime.sleep(0.5)\nimport wsgiref.util\nLOADED = True\n")
    info = tmp_path / "slow-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: slow\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[engine_overlay.patches]\nslow = slow_patch\n")
    code = """
import sys, threading, time
first = threading.Thread(target=__import__, args=("slow_patch",), daemon=True)
first.start()
time.sleep(0.1)
second = threading.Thread(target=__import__, args=("vllm.parser",), daemon=True)
second.start()
second.join(20)
print(second.is_alive(), sys.modules["slow_patch"].LOADED)
sys.stdout.flush()
__import__("os")._exit(0)
"""
    path = os.pathsep.join([str(engine), str(tmp_path)])
    out = must(installed.python, "-c", code, PYTHONPATH=path, ENGINE_OVERLAY_LOG="quiet")
    assert out == "False True\n"


def test_threads_that_import_the_engine_at_once(installed: Environment, engine: Path) -> None:
    code = """
import sys, threading
gate = threading.Barrier(8)
def go():
    gate.wait()
    import vllm.parser
threads = [threading.Thread(target=go, daemon=True) for _ in range(8)]
for thread in threads: thread.start()
for thread in threads: thread.join(20)
assert not any(thread.is_alive() for thread in threads)
from vllm.cases import report
print(report())
"""
    done = run(installed.python, "-c", code, PYTHONPATH=str(engine), ENGINE_OVERLAY_LOG="quiet")
    assert (done.returncode, done.stderr) == (0, "")
    report = json.loads(done.stdout)
    assert (report["way"], report["finders"], report["waiting"]) == ("startup", 1, 0)


def test_without_startup_files_the_entry_point_is_the_way_in(
    installed: Environment, built: Built, engine: Path, tmp_path: Path
) -> None:
    installed.pip("install", "--no-deps", "--target", tmp_path / "target", built.wheel)
    code = f"""
import importlib.metadata, sys
assert "_engine_overlay_startup" not in sys.modules
import vllm
for entry in importlib.metadata.entry_points(group="vllm.general_plugins"):
    entry.load()()
{REPORT}
"""
    path = os.pathsep.join([str(tmp_path / "target"), str(engine)])
    # -S: nothing of the environment's own site-packages, where the start-up file is.
    code = f"import sys; sys.path.append({str(installed.site)!r})\n{code}"
    done = run(installed.python, "-S", "-c", code, PYTHONPATH=path, ENGINE_OVERLAY_LOG="quiet")
    assert (done.returncode, done.stderr) == (0, "")
    report = json.loads(done.stdout)
    assert report["way"] == "plugin"
    assert report["overlay"].startswith(str(tmp_path / "target"))


def test_a_user_who_can_write_nothing(built: Built, work: Path, engine: Path) -> None:
    """Site-packages that belong to root, compiled files nowhere, no home and no state directory."""
    if os.getuid() != 0:
        pytest.skip("only root can become another user")
    nobody = 65534

    def as_nobody(*command: str | Path, **extra: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(part) for part in command],
            env=clean_environment(HOME="/nonexistent", TMPDIR=str(work), **extra),
            cwd="/",
            user=nobody,
            group=nobody,
            extra_groups=[],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    base = None
    for python in [p for found in all_interpreters().values() for p in found]:
        try:
            if as_nobody(python, "-c", "import venv").returncode == 0:
                base = python
                break
        except OSError:
            continue
    if base is None:
        pytest.skip("no Python on this machine may be run by another user")
    environment = Environment.create(base, work / "read-only", own_pip=False)
    environment.pip("install", "--no-deps", "--no-compile", built.wheel)
    for compiled in environment.site.rglob("__pycache__"):
        shutil.rmtree(compiled)
    environment.before = environment.files()
    idle = as_nobody(environment.python, "-c", "import sys; print(sys.modules['_engine_overlay_startup'])")
    assert (idle.returncode, idle.stderr) == (0, "")
    done = as_nobody(
        environment.python, "-c", REPORT, PYTHONPATH=str(engine), ENGINE_OVERLAY_LOG="quiet",
        ENGINE_OVERLAY_STATE_DIR="/proc/nowhere",
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["way"] == "startup"
    command = as_nobody(environment.folder / "bin" / "engine-overlay", "run", "--", environment.python, "-V")
    assert (command.returncode, command.stderr) == (0, "")
    assert environment.files() == environment.before


def test_this_interpreter_is_one_of_them() -> None:
    assert f"{sys.version_info[0]}.{sys.version_info[1]}" in all_interpreters()
