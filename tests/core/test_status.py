"""Status: read from the live objects, kept in a file per process, and never in the engine's way."""


import pytest

from engine_overlay import importer, status
from tests.core.support import answer, engine, louder_patch, python, third_party

CODE = """
from engine_overlay import importer, commit, status
importer.install('api')
import vllm.greeting as g, json, os, sys
def states():
    return [p['state'] for p in status.report()['patches'] if p['id'] == 'louder'][0]
"""


@pytest.fixture
def folder(tmp_path):
    return third_party(engine(tmp_path), "loud_patches", louder_patch(tmp_path))


def test_it_follows_the_live_object(folder):
    code = (
        CODE
        + """
seen = [states()]
mine = g.Greeter.greet
g.Greeter.greet = lambda self: 'x'
seen.append(states())
g.Greeter.greet = mine
commit.undo('louder'); seen.append(states())
commit.redo('louder'); seen.append(states())
print(json.dumps(seen))
"""
    )
    assert answer(python(folder, code)) == ["applied", "displaced", "undone", "applied"]


def test_each_process_leaves_a_file_and_takes_it_away(folder):
    code = CODE + "from engine_overlay import identity\n"
    code += "print(json.dumps([os.getpid(), str(identity.this()), os.listdir(%r)]))"
    pid, name, files = answer(python(folder, code % str(folder / "state")))
    assert sorted(files) == [f"{name}.json", f"{name}.sock"] and name.startswith(f"{pid}-")
    assert list((folder / "state").iterdir()) == []


FORKS = """
import multiprocessing, subprocess, time
from pathlib import Path
from engine_overlay import identity
fork = multiprocessing.get_context('fork')
state = os.environ['ENGINE_OVERLAY_STATE_DIR']
def stems(wanted=lambda found: True):
    end = time.monotonic() + 60
    while True:
        found = sorted({name.partition('.')[0] for name in os.listdir(state)})
        if wanted(found) or time.monotonic() > end:
            return found
def square(x):
    return x * x
"""


def test_children_that_are_no_engine_processes_write_nothing(folder):
    """A pool, another program after a preexec_fn, and a bare fork: the state folder has only their parent in it."""
    code = (
        CODE
        + FORKS
        + """
mine = str(identity.this())
with fork.Pool(8) as pool:
    pool.map(square, range(64))
    seen = [stems()]
sleep = subprocess.Popen(['sleep', '60'], preexec_fn=lambda: None)
seen.append(stems()); sleep.kill(); sleep.wait()
r, w = os.pipe()
if os.fork() == 0:
    os.write(w, b'x'); os._exit(0)
os.read(r, 1); os.wait()
print(json.dumps([mine, *seen, stems()]))
"""
    )
    mine, *seen = answer(python(folder, code))
    assert seen == [[mine]] * 3


def test_next_to_nothing_is_done_in_a_child_that_may_become_another_program(folder):
    """Counted in calls: the hook decides nothing, reads nothing and writes nothing."""
    code = (
        CODE
        + FORKS
        + """
calls = 0
def count(frame, event, arg):
    global calls
    calls += event in ('call', 'c_call')
r, w = os.pipe()
threads = len(os.listdir('/proc/self/task'))
os.register_at_fork(before=lambda: sys.setprofile(count))
if os.fork() == 0:
    sys.setprofile(None)
    os.write(w, json.dumps([calls, len(os.listdir('/proc/self/task'))]).encode()); os._exit(0)
sys.setprofile(None); os.wait()
print(os.read(r, 99).decode())
"""
    )
    calls, threads = answer(python(folder, code))
    assert 0 < calls < 150 and threads == 1


def test_a_forked_engine_process_reports_and_leaves_nothing(folder):
    code = (
        CODE
        + FORKS
        + """
go = fork.Event()
worker = fork.Process(target=go.wait, name='VllmWorker-0'); worker.start()
during = stems(lambda found: len(found) == 2 and len(os.listdir(state)) == 4)
from engine_overlay import reading
told = [[r['pid'], r['role'], r['live']] for r in reading.gather(Path(state)).reports if r['pid'] == worker.pid]
go.set(); worker.join()
print(json.dumps([str(identity.this()), during, told, worker.pid, stems()]))
"""
    )
    mine, during, told, pid, after = answer(python(folder, code))
    assert len(during) == 2 and mine in during
    assert told == [[pid, "worker (VllmWorker-0)", True]]
    assert after == [mine]


def told_by_a_fork(folder, *lines: str):
    """(the process, what the last of ``lines``, run in a fork of it, is)."""
    *before, last = lines
    work = "; ".join([*before, f"os.write(w, json.dumps({last}).encode()); os._exit(0)"])
    code = f"{CODE}{FORKS}r, w = os.pipe()\nif os.fork() == 0:\n    {work}\n"
    code += "os.wait(); print(json.dumps([str(identity.this()), json.loads(os.read(r, 9999))]))\n"
    return answer(python(folder, code))


def test_a_forked_child_reports_when_it_patches_something(folder):
    parent, (child, found) = told_by_a_fork(
        folder, "status.write(importer.overlay)", "[str(identity.this()), stems()]"
    )
    assert sorted([parent, child]) == found and parent != child


def test_a_child_does_not_keep_its_parents_socket_open(folder):
    there = "[os.readlink(p) for n in os.listdir('/proc/self/fd') if os.path.exists(p := f'/proc/self/fd/{n}')]"
    _, links = told_by_a_fork(folder, there)
    assert links and not [link for link in links if link.startswith("socket:")]


def test_a_state_folder_that_cannot_be_written_is_one_warning(folder):
    (folder / "file").write_text("")
    done = python(folder, CODE + "print(json.dumps(states()))", ENGINE_OVERLAY_STATE_DIR=str(folder / "file" / "x"))
    assert answer(done) == "applied"
    (line,) = [text for text in done.stderr.splitlines() if "status file" in text]
    assert "set ENGINE_OVERLAY_STATE_DIR to a folder that this user can write" in line


def test_without_an_overlay_the_report_says_so(monkeypatch):
    monkeypatch.setattr(importer, "overlay", None)
    got = status.report()
    assert got["way"] is None and got["engine"] is None and got["patches"] == []
