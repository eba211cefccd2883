"""A fork of a warm process is to its caller what a process of its own would be."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.warm.client import Warm

STARTUP = "import os, sys; os.getenv('MODE') == 'off' or sys.meta_path.append('of the start-up file')"


@pytest.fixture(scope="module")
def warm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Warm]:
    found = Warm(sys.executable, ["colorsys", "not_there"], os.environ, tmp_path_factory.mktemp("warm"), STARTUP)
    yield found
    found.close()


MAIN = """
import sys, multiprocessing
def child(queue):
    queue.put('from a child')
if __name__ == '__main__':
    print(sys.argv, sys.path[:2], __file__, __spec__ and __spec__.name)
    context = multiprocessing.get_context('spawn')
    queue = context.Queue()
    process = context.Process(target=child, args=(queue,))
    process.start()
    print(queue.get(timeout=60))
    process.join()
"""


def both(warm: Warm, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """What the fork did, which is what an interpreter does."""
    given = {"env": {**os.environ, "PYTHONPATH": str(folder), "MODE": "off"}, "cwd": folder}
    forked = warm.run(arguments, **given)
    given |= {"capture_output": True, "text": True, "stdin": subprocess.DEVNULL}
    started = subprocess.run([sys.executable, *arguments], **given)
    assert (forked.returncode, forked.stdout) == (started.returncode, started.stdout)
    assert forked.stderr.splitlines()[-1:] == started.stderr.splitlines()[-1:]
    return forked


def test_it_has_what_was_imported_before_and_an_environment_of_its_own(warm: Warm, tmp_path: Path) -> None:
    code = "import os, sys; print('colorsys' in sys.modules, os.environ, os.getcwd())"
    said = warm.run(["-c", code], env={"MODE": "off"}, cwd=tmp_path).stdout
    assert said == f"True environ({{'MODE': 'off'}}) {tmp_path}\n"


ENDS = ["", "sys.exit(3)", "sys.exit('why')", "sys.exit()", "raise KeyError('gone')", "print(not_there)"]


@pytest.mark.parametrize("end", ENDS)
def test_it_ends_as_an_interpreter_does(warm: Warm, tmp_path: Path, end: str) -> None:
    code = f"import atexit, sys\natexit.register(print, 'left')\nprint('here', sys.argv)\n{end}"
    both(warm, tmp_path, "-c", code, "word")


def test_a_module_and_a_file_are_run_as_main(warm: Warm, tmp_path: Path) -> None:
    (tmp_path / "some_module.py").write_text(MAIN)
    for arguments in (["-m", "some_module", "a"], [str(tmp_path / "some_module.py"), "a"]):
        assert "from a child" in both(warm, tmp_path, *arguments).stdout


def test_the_startup_file_sees_the_environment_of_the_fork(warm: Warm) -> None:
    code = "import sys; print(sys.meta_path[-1])"
    said = [warm.run(["-c", code], env={"MODE": mode}).stdout for mode in ("on", "off")]
    assert said[0] == "of the start-up file\n" and said[1] != said[0]


def test_it_can_be_waited_for_and_ended(warm: Warm) -> None:
    with tempfile.TemporaryFile() as out:
        process = warm.popen(["-c", "import time; time.sleep(60)"], env={}, stdout=out, stderr=out)
        assert process.poll() is None
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.05)
        process.terminate()
        assert process.wait(10) == -signal.SIGTERM and process.poll() == -signal.SIGTERM
        process.kill()


def test_input_and_both_outputs_are_the_callers(warm: Warm) -> None:
    code = "import sys; print(sys.stdin.read().upper()); print('é\\udc80', file=sys.stderr)"
    done = warm.run(["-c", code], env={}, input="given")
    assert (done.returncode, done.stdout, done.stderr) == (0, "GIVEN\n", "é\\udc80\n")


def test_several_run_at_a_time_and_end_with_the_warm_process(tmp_path: Path) -> None:
    own = Warm(sys.executable, [], os.environ, tmp_path)
    with tempfile.TemporaryFile() as out:
        running = [own.popen(["-c", "import sys; sys.stdin.read()"], env={}, stdout=out, stderr=out) for _ in range(3)]
        assert [process.wait(10) for process in running] == [0, 0, 0]
    own.close()
    assert not own.popen(["-c", "print('again')"], env={}, stdout=1, stderr=2).wait(10)
    own.close()
