"""Status: read from the live objects, kept in a file per process, and never in the engine's way."""

import json
import os

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
    code = CODE + "print(json.dumps([os.getpid(), os.listdir(%r)]))"
    pid, files = answer(python(folder, code % str(folder / "state")))
    assert sorted(files) == [f"{pid}.json", f"{pid}.sock"]
    assert list((folder / "state").iterdir()) == []


def test_a_forked_child_has_its_own_file(folder):
    code = (
        CODE
        + """
r, w = os.pipe()
if os.fork() == 0:
    os.write(w, json.dumps(sorted(os.listdir(%r))).encode()); os._exit(0)
os.wait(); print(json.dumps([os.getpid(), json.loads(os.read(r, 9999))]))
"""
    )
    pid, files = answer(python(folder, code % str(folder / "state")))
    assert len(files) == 4 and {f"{pid}.json", f"{pid}.sock"} <= set(files)


def test_a_state_folder_that_cannot_be_written_is_one_warning(folder):
    (folder / "file").write_text("")
    done = python(folder, CODE + "print(json.dumps(states()))", ENGINE_OVERLAY_STATE_DIR=str(folder / "file" / "x"))
    assert answer(done) == "applied"
    (line,) = [text for text in done.stderr.splitlines() if "status file" in text]
    assert "set ENGINE_OVERLAY_STATE_DIR to a folder that this user can write" in line


def test_reading_skips_broken_files_and_removes_those_of_dead_processes(tmp_path):
    (tmp_path / "1.json").write_text("not json")
    (tmp_path / "2.json").write_text(json.dumps({"pid": 2**22 + 1}))
    (tmp_path / "3.json").write_text(json.dumps({"pid": os.getpid()}))
    assert status.read_all(tmp_path) == [{"pid": os.getpid(), "live": False}]
    assert not (tmp_path / "2.json").exists()


def test_without_an_overlay_the_report_says_so(monkeypatch):
    monkeypatch.setattr(importer, "overlay", None)
    got = status.report()
    assert got["way"] is None and got["engine"] is None and got["patches"] == []
