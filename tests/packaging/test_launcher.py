"""``engine-overlay run``: from an environment of its own into one that has never heard of the overlay."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from .support import REPORT, Built, Environment, clean_environment, find_uv, must, run, script

pytestmark = pytest.mark.packaging


@pytest.fixture(scope="session")
def other(minor: str, interpreters: dict[str, list[str]], work: Path) -> Environment:
    """An environment without the overlay, of the same Python."""
    return Environment.create(interpreters[minor][0], work / f"other-{minor}", own_pip=False)


def launch(installed: Environment, *command: str | Path, **extra: str) -> subprocess.CompletedProcess[str]:
    extra = {"ENGINE_OVERLAY_LOG": "quiet"} | extra
    return run(installed.folder / "bin" / "engine-overlay", "run", "--", *command, **extra)


def report_of(done: subprocess.CompletedProcess[str]) -> dict:
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return json.loads(done.stdout)


def test_a_foreign_environment_gets_the_overlay_and_nothing_else_of_ours(
    installed: Environment, other: Environment, engine: Path
) -> None:
    report = report_of(launch(installed, other.python, "-c", REPORT, PYTHONPATH=str(engine)))
    assert (report["way"], report["finders"], report["waiting"]) == ("launcher", 1, 0)
    assert Path(report["overlay"]).parent == installed.site / "engine_overlay"
    assert report["root"] == str(engine / "vllm")
    # The engine's environment must not see the packages of the launcher's.
    assert str(installed.site) not in report["path"]
    assert [p for p in report["path"] if "engine_overlay" in p] == [
        str(installed.site / "engine_overlay" / "_launcher")
    ]


def test_every_built_in_patch_is_found_there(installed: Environment, other: Environment, engine: Path) -> None:
    code = "import vllm; from engine_overlay import catalog; print(sorted(catalog.load().entries))"
    done = launch(installed, other.python, "-c", code, PYTHONPATH=str(engine))
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == must(installed.python, "-c", code, PYTHONPATH=str(engine), ENGINE_OVERLAY_LOG="quiet")


def test_installed_into_a_folder_where_no_startup_file_runs(
    installed: Environment, other: Environment, built: Built, engine: Path, tmp_path: Path
) -> None:
    target = tmp_path / "target"
    installed.pip("install", "--no-deps", "--target", target, built.wheel)
    path = os.pathsep.join([str(target), str(engine)])
    command = [other.python, "-m", "engine_overlay.cli", "run", "--", other.python, "-c", REPORT]
    report = report_of(run(*command, PYTHONPATH=path, ENGINE_OVERLAY_LOG="quiet"))
    assert report["way"] == "launcher"
    assert Path(report["overlay"]).parent == target / "engine_overlay"


def test_its_folder_alone_on_the_path_is_enough(
    installed: Environment, other: Environment, built: Built, engine: Path, tmp_path: Path
) -> None:
    """For a container: a volume, and one variable."""
    target = tmp_path / "volume"
    installed.pip("install", "--no-deps", "--target", target, built.wheel)
    path = os.pathsep.join([str(target / "engine_overlay" / "_launcher"), str(engine)])
    report = report_of(run(other.python, "-c", REPORT, PYTHONPATH=path, ENGINE_OVERLAY_LOG="quiet"))
    assert (report["way"], Path(report["overlay"]).parent) == ("launcher", target / "engine_overlay")
    assert str(target) not in report["path"]
    off = run(other.python, "-c", "import sys, vllm; print('engine_overlay' in sys.modules)",
              PYTHONPATH=path, ENGINE_OVERLAY="off")  # fmt: skip
    assert (off.returncode, off.stdout, off.stderr) == (0, "False\n", "")


def test_python_m(installed: Environment, other: Environment, engine: Path) -> None:
    done = launch(installed, other.python, "-m", "vllm.server", "a b", "--x", PYTHONPATH=str(engine))
    assert done.returncode == 0
    assert done.stdout.endswith(" a b --x\n")
    assert json.loads(done.stdout.removesuffix(" a b --x\n"))["way"] == "launcher"


def test_a_console_script_by_name(installed: Environment, other: Environment, engine: Path, tmp_path: Path) -> None:
    script(tmp_path / "serve-it", f"#!{other.python}\n{REPORT}\n")
    path = os.pathsep.join([str(tmp_path), os.environ["PATH"]])
    assert report_of(launch(installed, "serve-it", PYTHONPATH=str(engine), PATH=path))["way"] == "launcher"


def test_children_of_every_kind(installed: Environment, other: Environment, engine: Path, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        """
import json, multiprocessing, subprocess, sys

def child(queue):
    import vllm
    from vllm.cases import report
    queue.put(json.loads(report())["way"])

if __name__ == "__main__":
    ways = {}
    for method in ("spawn", "fork", "forkserver"):
        context = multiprocessing.get_context(method)
        queue = context.Queue()
        process = context.Process(target=child, args=(queue,))
        process.start()
        ways[method] = queue.get(timeout=60)
        process.join()
    text = "import vllm; from vllm.cases import report; print(report())"
    ways["subprocess"] = json.loads(subprocess.check_output([sys.executable, "-c", text]))["way"]
    print(json.dumps(ways))
"""
    )
    ways = report_of(launch(installed, other.python, program, PYTHONPATH=str(engine)))
    assert ways == dict.fromkeys(("spawn", "fork", "forkserver", "subprocess"), "launcher")


def test_beside_the_startup_file_it_starts_once(installed: Environment, engine: Path) -> None:
    idle = launch(installed, installed.python, "-c", "import sys; print([f for f in sys.meta_path])")
    assert idle.stdout.count("_engine_overlay_startup") == 1 + idle.stdout.count("_launcher")
    report = report_of(launch(installed, installed.python, "-c", REPORT, PYTHONPATH=str(engine)))
    assert (report["way"], report["finders"], report["waiting"]) == ("startup", 1, 0)


def test_started_by_itself_it_adds_nothing_more(installed: Environment) -> None:
    command = installed.folder / "bin" / "engine-overlay"
    ask = (installed.python, "-c", "import os; print(os.environ['PYTHONPATH'])")
    once = launch(installed, *ask, PYTHONPATH="/a:/b")
    twice = launch(installed, command, "run", "--", *ask, PYTHONPATH="/a:/b")
    assert once.stdout == twice.stdout
    assert once.stdout.rstrip("\n").split(os.pathsep)[1:] == ["/a", "/b"]


@pytest.mark.parametrize("value", [None, ""])
def test_an_empty_pythonpath_does_not_become_the_current_folder(
    installed: Environment, other: Environment, value: str | None
) -> None:
    extra = {} if value is None else {"PYTHONPATH": value}
    done = launch(installed, other.python, "-c", "import os; print(os.environ['PYTHONPATH'])", **extra)
    assert os.pathsep not in done.stdout


def test_nothing_else_of_the_environment_changes(installed: Environment) -> None:
    ask = (installed.python, "-c", "import json, os; print(json.dumps(dict(os.environ)))")
    before = json.loads(run(*ask, ENGINE_OVERLAY_LOG="quiet").stdout)
    after = json.loads(launch(installed, *ask).stdout)
    assert after.pop("PYTHONPATH")
    assert after == before
    off = json.loads(launch(installed, *ask, ENGINE_OVERLAY="off").stdout)
    assert off == before | {"ENGINE_OVERLAY": "off"}


def test_off_below_the_launcher(installed: Environment, other: Environment, engine: Path) -> None:
    code = "import vllm, sys; print([n for n in sys.modules if 'engine_overlay' in n])"
    done = launch(installed, "env", "ENGINE_OVERLAY=off", other.python, "-c", code, PYTHONPATH=str(engine))
    assert (done.stdout, done.stderr) == ("[]\n", "")


HIDDEN = {
    "runs": "import sys; sys.hidden = __file__; MARK = 1",
    "raises": "raise RuntimeError('of the user')",
    "lacks a module": "import no_such_module",
    "looks for itself": "import sys; sys.hidden = sys.modules['sitecustomize'] is sys.modules[__name__]",
    "imports the engine": "import vllm, sys; sys.hidden = vllm.VALUE",
}


@pytest.mark.parametrize("case", HIDDEN)
def test_the_hidden_sitecustomize_runs_as_without_us(
    installed: Environment, other: Environment, engine: Path, tmp_path: Path, case: str
) -> None:
    (tmp_path / "sitecustomize.py").write_text(HIDDEN[case] + "\n")
    code = """
import sys
import sitecustomize
print(getattr(sys, "hidden", None), getattr(sitecustomize, "MARK", None), sitecustomize.__file__)
"""
    path = os.pathsep.join([str(tmp_path), str(engine)])
    plain = run(other.python, "-c", code, PYTHONPATH=path)
    ours = launch(installed, other.python, "-c", code, PYTHONPATH=path)
    if case == "runs":
        assert plain.stdout == f"{tmp_path}/sitecustomize.py 1 {tmp_path}/sitecustomize.py\n"
        assert ours.stdout == plain.stdout
    elif case in ("raises", "lacks a module"):
        # site's own report of a sitecustomize that raises, and then the program fails on its own import.
        assert ours.returncode == plain.returncode == 1
        first = [done.stderr.splitlines()[:2] for done in (plain, ours)]
        assert first[0] == first[1]
    else:
        assert (ours.returncode, ours.stdout, ours.stderr) == (0, plain.stdout, "")
    if case not in ("raises", "lacks a module"):
        code = f"{REPORT}"
        assert report_of(launch(installed, other.python, "-c", code, PYTHONPATH=path))["way"] == "launcher"


@pytest.mark.parametrize(
    ("name", "code", "word"),
    [
        ("no-such-command-anywhere", 127, "not found"),
        ("/no/such/folder/command", 127, "not found"),
        ("plain-file", 126, "permission denied"),
        ("a-folder", 126, "permission denied"),
        ("bad-interpreter", 126, "interpreter"),
    ],
)
def test_a_command_that_cannot_be_run(installed: Environment, tmp_path: Path, name: str, code: int, word: str) -> None:
    (tmp_path / "plain-file").write_text("no program\n")
    (tmp_path / "a-folder").mkdir()
    script(tmp_path / "bad-interpreter", "#!/no/such/interpreter\n")
    command = tmp_path / name if (tmp_path / name).exists() else name
    done = launch(installed, command)
    assert done.returncode == code
    lines = done.stderr.splitlines()
    assert len(lines) == 1
    assert lines[0].startswith("engine-overlay: run: ")
    assert word in lines[0].lower()


def test_no_command(installed: Environment) -> None:
    for arguments in (["run"], ["run", "--"]):
        done = run(installed.folder / "bin" / "engine-overlay", *arguments)
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr.startswith("engine-overlay: run: no command given")


def test_help(installed: Environment) -> None:
    done = run(installed.folder / "bin" / "engine-overlay", "run", "--help")
    assert (done.returncode, done.stderr) == (0, "")
    assert "engine-overlay run -- " in done.stdout


def test_the_exit_code_and_the_streams_are_the_commands(installed: Environment) -> None:
    code = "import sys; print(sys.stdin.read()); print('err', file=sys.stderr); sys.exit(41)"
    done = subprocess.run(
        [installed.folder / "bin" / "engine-overlay", "run", "--", installed.python, "-c", code],
        env=clean_environment(), input="in", capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (41, "in\n", "err\n")


def test_from_a_checkout(environment: Environment, other: Environment, source: Path, engine: Path) -> None:
    install = environment.uv if find_uv() else environment.pip
    install("install", "--no-deps", "-e", source)
    try:
        for python, way in ((environment.python, "startup"), (other.python, "launcher")):
            report = report_of(launch(environment, python, "-c", REPORT, PYTHONPATH=str(engine)))
            assert report["way"] == way
            assert Path(report["overlay"]) == source / "overlay" / "__init__.py"
        code = "import vllm, engine_overlay.patches.parsing as p; print(p.__file__)"
        done = launch(environment, other.python, "-c", code, PYTHONPATH=str(engine))
        assert done.stdout == f"{source}/patches/parsing/__init__.py\n"
    finally:
        environment.pip("uninstall", "-y", "engine-overlay")


def test_this_test_can_tell(other: Environment, engine: Path) -> None:
    report = report_of(run(other.python, "-c", REPORT, PYTHONPATH=str(engine)))
    assert (report["way"], report["overlay"]) == (None, None)
