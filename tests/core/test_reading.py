"""Reading what others wrote: no hang, no flood, no traceback, nobody else's files touched, and whose word it is."""

from __future__ import annotations

import json
import os
import socket
import time

import pytest

from engine_overlay import identity, live, reading, statefolder
from engine_overlay.statefolder import Folder, Unfit
from tests.core.hostile import NOBODY, as_root, bind, by, end, listening, me, put, report, shared

DEAD = 2**22 + 1


def test_a_healthy_report_is_this_users_own_word(tmp_path):
    put(tmp_path, me(), report())
    found = reading.gather(tmp_path)
    (got,) = found.reports
    assert (got["live"], got["user"], got["word"], got["elsewhere"]) == (False, os.geteuid(), "file", False)
    assert found.lines == []


# -- one bad file costs one line

DEEP = b'{"pid": 1, "patches": ' + b"[" * 50_000 + b"]" * 50_000 + b"}"
BAD = {
    "no JSON": b"not json",
    "infinite": b'{"pid": 1e400}',
    "long number": b'{"pid": 1%s}' % (b"0" * 21),
    "very long number": b'{"pid": 1%s}' % (b"0" * 200_000),
    "deep": DEEP,
    "rather deep": json.dumps(report(values={"a": {"b": [[[[[[[[[[[[[[1]]]]]]]]]]]]]]}})).encode(),
    "NaN": json.dumps(report(time=float("nan"))).encode(),
    "many rows": json.dumps(report(patches=report()["patches"] * 1001)).encode(),
    "many lists": b'{"pid": 1, "patches": [' + b"[[],[],[],[]]," * 18_000 + b"[]]}",
    "a list": b"[]",
    "of another process": json.dumps(report(pid=1)).encode(),
    "a verdict that is a list": json.dumps(report(patches=[report()["patches"][0] | {"verdict": []}])).encode(),
    "too long": b" " * (statefolder.MAX_BYTES + 1),
    "no UTF-8": b"\xff\xfe\x00",
}


@pytest.mark.parametrize("data", BAD.values(), ids=BAD)
def test_a_file_that_is_no_report_costs_one_line(tmp_path, data):
    bad = put(tmp_path, me(), data)
    put(tmp_path, os.getppid(), report(os.getppid()))
    found = reading.gather(tmp_path)
    (line,) = found.lines
    assert str(bad) in line and "\n" not in line
    assert [got["pid"] for got in found.reports] == [os.getppid()]
    assert bad.exists()


KINDS = {"fifo": os.mkfifo, "folder": os.mkdir, "link": lambda path: os.symlink("/dev/zero", path)}


@pytest.mark.parametrize("make", KINDS.values(), ids=KINDS)
def test_what_is_no_regular_file_is_not_opened(tmp_path, make):
    make(tmp_path / f"{me()}.json")
    make(tmp_path / "1.json")
    found = reading.gather(tmp_path)
    assert found.reports == [] and len(found.lines) == 2
    assert all("it is no regular file" in line for line in found.lines)


def test_names_that_are_not_ours_are_passed_by(tmp_path):
    for name in ("1" * 22, "x", "-1", "1-2", "1-2-3-zz", "\u0661", f"{os.getpid()}-1-1-1-1"):
        put(tmp_path, name, report())
    found = reading.gather(tmp_path)
    assert (found.reports, found.lines) == ([], []) and len(list(tmp_path.iterdir())) == 7


def test_a_crowd_of_files_is_not_looked_at_for_ever(tmp_path, monkeypatch):
    monkeypatch.setattr(statefolder, "MAX_NAMES", 50)
    for i in range(60):
        put(tmp_path, f"1-{i}-0-0", b"x")
    found = reading.gather(tmp_path)
    assert any("more than 50 files" in line for line in found.lines)
    assert len(found.lines) <= reading.MAX_LINES + 1


def test_all_reports_together_have_a_size(tmp_path, monkeypatch):
    monkeypatch.setattr(reading, "BUDGET_BYTES", 1)
    monkeypatch.setattr(reading.Found, "__init__", _with_budget(reading.Found.__init__))
    put(tmp_path, me(), report())
    put(tmp_path, os.getppid(), report(os.getppid()))
    found = reading.gather(tmp_path)
    assert len(found.reports) == 1 and "all reports together are too long" in found.lines[0]


def _with_budget(init):
    def changed(self, *args, **kwargs):
        init(self, *args, **kwargs)
        self.budget = 1

    return changed


# -- sockets


def drip(client: socket.socket) -> None:
    for _ in range(600):
        client.sendall(b" ")
        time.sleep(0.05)


def flood(client: socket.socket) -> None:
    while True:
        client.sendall(b"[" * 65536)


def silent(client: socket.socket) -> None:
    time.sleep(60)


@pytest.mark.parametrize(
    ("serve", "said"), [(drip, None), (silent, None), (flood, "answers with more than a report can have")]
)
def test_a_socket_that_stalls_or_floods_has_a_deadline_and_a_size(tmp_path, monkeypatch, serve, said):
    monkeypatch.setattr(live, "TIMEOUT_S", 0.5)
    put(tmp_path, me(), report())
    with listening(tmp_path / f"{me()}.sock", serve):
        begin = time.monotonic()
        found = reading.gather(tmp_path)
        assert time.monotonic() - begin < 10
    assert [got["live"] for got in found.reports] == [False]
    assert len(found.lines) == (said is not None) and all(said in line for line in found.lines)


def test_one_that_stalls_keeps_no_other_waiting(tmp_path, monkeypatch):
    """Side by side: all of them have one deadline together, not one after the other."""
    monkeypatch.setattr(live, "TIMEOUT_S", 0.5)
    with Folder.open(tmp_path) as folder:
        asked = [str(i) for i in range(live.AT_ONCE)]
        with listening(tmp_path / "0.sock", silent):
            for i in range(1, live.AT_ONCE):
                os.link(tmp_path / "0.sock", tmp_path / f"{i}.sock")
            begin = time.monotonic()
            answers = live.ask_all(folder, asked, begin + 60)
            took = time.monotonic() - begin
    assert len(answers) == live.AT_ONCE and took < live.AT_ONCE * 0.5 / 2


def test_one_that_has_no_socket_is_not_waited_for(tmp_path, monkeypatch):
    monkeypatch.setattr(live, "TIMEOUT_S", 600)
    with Folder.open(tmp_path) as folder:
        assert list(live.ask_all(folder, ["1", "2"], time.monotonic() + 600)) == ["1", "2"]


def test_the_whole_command_has_a_deadline(tmp_path):
    with Folder.open(tmp_path) as folder, listening(tmp_path / "0.sock", silent):
        begin = time.monotonic()
        answers = live.ask_all(folder, ["0", *map(str, range(1, 1000))], begin - 1)
        assert time.monotonic() - begin < 10
    assert len(answers) == 1000 and not any(answer.data for answer in answers.values())


@pytest.mark.parametrize("data", [b"", b"nonsense", DEEP, json.dumps(report(pid=1)).encode()], ids=len)
def test_an_answer_that_is_no_report_costs_one_line_at_most(tmp_path, data):
    put(tmp_path, me(), report(role="from the file"))
    with listening(tmp_path / f"{me()}.sock", lambda client: client.sendall(data)):
        found = reading.gather(tmp_path)
    assert len(found.lines) <= 1 and [got["pid"] for got in found.reports] == [os.getpid()]


def test_the_kernel_says_who_answers(tmp_path):
    put(tmp_path, me(), report(role="old"))
    with listening(tmp_path / f"{me()}.sock", lambda client: client.sendall(json.dumps(report(role="new")).encode())):
        (got,) = reading.gather(tmp_path).reports
    assert (got["live"], got["role"], got["user"], got["word"]) == (True, "new", os.geteuid(), "kernel")


def test_nobody_answers_in_the_name_of_another_process(tmp_path):
    other = str(identity.Process(1, identity.start_of(1), identity.namespace(), identity.boot()))
    put(tmp_path, other, report(1, role="its own"))
    forged = json.dumps(report(1, role="forged")).encode()
    with listening(tmp_path / f"{other}.sock", lambda client: client.sendall(forged)):
        found = reading.gather(tmp_path)
    assert f"process {os.getpid()} of user {os.geteuid()} answers in the name of another" in found.lines[0]
    assert all(got["role"] != "forged" for got in found.reports)


# -- who is who


def test_a_process_id_that_was_used_again_is_not_the_old_process(tmp_path):
    now = identity.this()
    old = identity.Process(now.pid, "1", now.namespace, now.boot)
    put(tmp_path, old, report(role="an API server that has ended"))
    put(tmp_path, now, report(role="main"))
    assert [got["role"] for got in reading.gather(tmp_path).reports] == ["main"]
    assert [path.stem for path in tmp_path.iterdir()] == [str(now)]


def test_two_containers_with_process_1_are_two(tmp_path):
    boot = identity.boot()
    first, second = (str(identity.Process(1, "5", namespace, boot)) for namespace in ("11", "12"))
    for stem in (first, second):
        put(tmp_path, stem, report(1, role=stem))
    found = reading.gather(tmp_path)
    assert [(got["pid"], got["role"], got["elsewhere"]) for got in found.reports] == [
        (1, first, True),
        (1, second, True),
    ]
    # A socket that nobody has open any more is the kernel's word that this one has ended.
    with socket.socket(socket.AF_UNIX) as server:
        bind(server, tmp_path / f"{first}.sock")
    assert [got["role"] for got in reading.gather(tmp_path).reports] == [second]
    assert [path.stem for path in tmp_path.iterdir()] == [second]


def test_files_of_another_machine_in_a_named_folder_are_left_alone(tmp_path):
    other = put(tmp_path, identity.Process(1, "5", "11", "deadbeef"), report(1))
    found = reading.gather(tmp_path)
    assert found.reports == [] and "1 files are of an earlier boot or another machine" in found.lines[0]
    assert other.exists()


# -- what is removed


def test_only_what_dead_processes_of_this_user_left_is_removed(tmp_path):
    now = identity.this()
    dead = identity.Process(DEAD, "7", now.namespace, now.boot)
    gone = [put(tmp_path, dead, report(DEAD)), put(tmp_path, DEAD, report(DEAD))]
    orphan = identity.Process(DEAD, "8", now.namespace, now.boot)
    with socket.socket(socket.AF_UNIX) as server:
        bind(server, tmp_path / f"{orphan}.sock")
    part = tmp_path / f".{orphan}.{'0' * 16}.part"
    part.write_text("")
    gone += [tmp_path / f"{orphan}.sock", part]
    alive = tmp_path / f".{now}.{'0' * 16}.part"
    kept = [alive, tmp_path / "notes.json", put(tmp_path, DEAD + 1, b"no report"), tmp_path / "notes.sock"]
    kept += [put(tmp_path, DEAD + 2, {"pid": DEAD + 2}), tmp_path / f"{orphan}.part"]
    for path in kept:
        path.exists() or path.write_text("")
    target = tmp_path / "target"
    target.write_text("precious")
    link = tmp_path / f"{identity.Process(DEAD, '9', now.namespace, now.boot)}.json"
    link.symlink_to(target)
    reading.gather(tmp_path)
    assert not any(map(os.path.lexists, gone))
    assert all(map(os.path.lexists, [*kept, link])) and target.read_text() == "precious"


def test_the_folder_of_a_state_is_no_symbolic_link(tmp_path):
    real, link = tmp_path / "real", tmp_path / "link"
    real.mkdir()
    kept = put(real, DEAD, report(DEAD))
    link.symlink_to(real)
    found = reading.gather(link)
    assert found.reports == [] and "is a symbolic link and not followed" in found.lines[0] and kept.exists()
    with pytest.raises(Unfit, match="symbolic link"):
        Folder.open(link, make=True)


def test_unfinished_files_have_names_that_nobody_can_guess(tmp_path):
    with Folder.open(tmp_path) as folder:
        with folder.part("1-2-3-4") as first, folder.part("1-2-3-4") as second:
            assert first != second and statefolder.part_of(first) == "1-2-3-4"
        folder.write("1-2-3-4.json", b"{}")
        assert folder.read("1-2-3-4.json") == (b"{}", os.geteuid())
    assert [path.name for path in tmp_path.iterdir()] == ["1-2-3-4.json"]
    assert (tmp_path / "1-2-3-4.json").stat().st_mode & 0o777 == 0o600


def test_a_link_in_place_of_a_status_file_is_replaced_and_not_written_through(tmp_path):
    target = tmp_path / "target"
    target.write_text("precious")
    (tmp_path / "1-2-3-4.json").symlink_to(target)
    with Folder.open(tmp_path) as folder:
        folder.write("1-2-3-4.json", b"{}")
    assert target.read_text() == "precious" and not (tmp_path / "1-2-3-4.json").is_symlink()


# -- other users


@as_root
def test_root_removes_nothing_of_another_user(monkeypatch):
    """A link in place of the folder of a user, and dead files of that user's own."""
    with shared(0o755) as temporary:
        monkeypatch.setattr(reading.tempfile, "gettempdir", lambda: str(temporary))
        victim = temporary / "victim"
        victim.mkdir()
        mine = put(victim, DEAD, report(DEAD))
        (temporary / "engine-overlay-4242").symlink_to(victim)
        theirs = temporary / f"engine-overlay-{NOBODY}"
        theirs.mkdir(mode=0o755)
        os.chown(theirs, NOBODY, NOBODY)
        by(NOBODY, lambda: put(theirs, DEAD, report(DEAD)))
        found = reading.gather()
        assert found.reports == [] and mine.exists() and (theirs / f"{DEAD}.json").exists()
        (line,) = found.lines
        assert "engine-overlay-4242 is a symbolic link" in line


@as_root
def test_a_folder_that_another_user_made_first_is_not_believed(monkeypatch):
    with shared() as temporary:
        monkeypatch.setattr(reading.tempfile, "gettempdir", lambda: str(temporary))
        first = temporary / f"engine-overlay-{os.geteuid()}"

        def forge() -> None:
            first.mkdir(mode=0o777)
            put(first, os.getppid(), report(os.getppid()))

        by(NOBODY, forge)
        found = reading.gather()
        assert found.reports == []
        assert f"belongs to user {NOBODY}, not to user {os.geteuid()}; it is not used" in found.lines[0]
        with pytest.raises(Unfit, match="not used"):
            Folder.open(first, owner=os.geteuid(), make=True)


def test_a_default_folder_that_others_can_write_to_is_not_believed(tmp_path, monkeypatch):
    monkeypatch.setattr(reading.tempfile, "gettempdir", lambda: str(tmp_path))
    reading.default_folder().mkdir()
    reading.default_folder().chmod(0o777)
    assert "can be written by other users" in reading.gather().lines[0]


@as_root
def test_a_user_has_no_word_about_a_process_of_another_user():
    with shared() as folder:
        by(NOBODY, lambda: put(folder, os.getppid(), report(os.getppid())))
        found = reading.gather(folder)
        assert found.reports == []
        assert f"user {NOBODY} wrote it about a process of user {os.geteuid()}" in found.lines[0]


@as_root
def test_the_word_of_another_user_about_its_own_process_is_named_as_his():
    with shared() as folder:
        child = by(NOBODY, lambda: put(folder, me(), report()), stay=True)
        try:
            (got,) = reading.gather(folder).reports
        finally:
            end(child)
        assert (got["pid"], got["user"], got["word"]) == (child, NOBODY, "file")


@as_root
def test_an_ordinary_user_reads_only_what_is_open_to_him():
    with shared() as folder:
        put(folder, me(), report(), mode=0o600)
        out = folder / "out"

        def look() -> None:
            found = reading.gather(folder)
            out.write_text(json.dumps([len(found.reports), found.lines]))

        by(NOBODY, look)
        count, (line,) = json.loads(out.read_text())
        assert count == 0 and "belongs to another user and cannot be read" in line
