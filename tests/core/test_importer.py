"""The way in, end to end in processes of their own: third-party patches of a small engine, and what can go wrong."""

import pytest

from tests.core.support import answer, engine, louder_patch, python, third_party

START = "from engine_overlay import importer; importer.install('api'); import json\n"
GREETING = START + "from vllm.greeting import Greeter; print(json.dumps(Greeter().greet()))"


@pytest.fixture
def folder(tmp_path):
    return engine(tmp_path)


def with_louder(folder):
    return third_party(folder, "loud_patches", louder_patch(folder))


def test_a_third_party_patch_goes_in_by_its_entry_point(folder):
    done = python(with_louder(folder), GREETING)
    assert answer(done) == "plain!"
    assert "engine-overlay: vllm 0.1.5: active: louder" in done.stderr


def test_off_by_any_spelling_leaves_the_engine_alone(folder):
    code = GREETING + "; import sys; assert not any(getattr(f, '__engine_overlay__', 0) for f in sys.meta_path)"
    assert answer(python(with_louder(folder), code, ENGINE_OVERLAY="0")) == "plain"


def test_modules_imported_earlier_are_patched_in_place(folder):
    code = (
        "import os; os.environ['ENGINE_OVERLAY'] = 'off'\nfrom vllm.greeting import Greeter, greet; g = Greeter()\n"
        "os.environ['ENGINE_OVERLAY'] = 'on'\n" + START + "print(json.dumps(g.greet()))"
    )
    assert answer(python(with_louder(folder), code, ENGINE_OVERLAY="off")) == "plain!"


def test_threads_that_import_at_once_all_see_the_patch(folder):
    code = (
        START
        + """
import threading
seen = []
def work():
    from vllm.greeting import Greeter
    seen.append(Greeter().greet())
threads = [threading.Thread(target=work) for _ in range(16)]
[t.start() for t in threads]; [t.join() for t in threads]
print(json.dumps(sorted(set(seen)) + [len(seen)]))
"""
    )
    assert answer(python(with_louder(folder), code)) == ["plain!", 16]


@pytest.mark.parametrize("method", ["spawn", "fork", "forkserver"])
def test_child_processes_are_patched(folder, method):
    (folder / "main.py").write_text(
        "import multiprocessing as m, json\n"
        "def child(q):\n"
        "    from engine_overlay import importer; importer.install('plugin')\n"
        "    from vllm.greeting import Greeter; q.put(Greeter().greet())\n"
        "if __name__ == '__main__':\n"
        "    from engine_overlay import importer; importer.install('api')\n"
        f"    c = m.get_context({method!r}); q = c.Queue(); p = c.Process(target=child, args=(q,)); p.start()\n"
        "    print(json.dumps(q.get(timeout=60))); p.join()\n"
    )
    code = f"import subprocess, sys; subprocess.run([sys.executable, {str(folder / 'main.py')!r}], check=True)"
    assert answer(python(with_louder(folder), code)) == "plain!"


def test_an_engine_module_that_runs_as_main_has_its_imports_patched(folder):
    (folder / "vllm" / "server.py").write_text(
        "from vllm.greeting import Greeter\nif __name__ == '__main__':\n    print('\"' + Greeter().greet() + '\"')\n"
    )
    code = START + "import runpy; runpy.run_module('vllm.server', run_name='__main__', alter_sys=True)"
    assert answer(python(with_louder(folder), code)) == "plain!"


def test_the_original_loader_is_what_the_module_sees(folder):
    code = START + (
        "import vllm.greeting as g, inspect\n"
        "print(json.dumps([type(g.__loader__).__name__, type(g.__spec__.loader).__name__, "
        "'def greet' in inspect.getsource(g)]))"
    )
    assert answer(python(with_louder(folder), code)) == ["SourceFileLoader", "SourceFileLoader", True]


BROKEN = {
    "at import": ("raise RuntimeError('no luck\\nsecond line')\n", "cannot be loaded (RuntimeError: no luck)"),
    "no record": ('"""Doc."""\n', "PATCH is NoneType"),
    "in its record": (None, "cannot be loaded (RecordError: louder: scope is empty)"),
    "no docstring": ("NODOC", "has no docstring"),
}


@pytest.mark.parametrize("what", BROKEN)
def test_a_third_party_patch_that_cannot_be_loaded_is_one_line(folder, what):
    source, line = BROKEN[what]
    good = louder_patch(folder)
    if source is None:
        source = good.replace('scope=("server",)', "scope=()")
    elif source == "NODOC":
        source = good.replace('"""A louder greeting."""', "")
    done = python(third_party(folder, "loud_patches", source), GREETING)
    assert answer(done) == "plain"
    (error,) = [text for text in done.stderr.splitlines() if "ERROR" in text]
    assert line in error and error.startswith("engine-overlay: ERROR: patch loud_patches of loud_patches 3.1 ")


def test_a_third_party_patch_that_imports_the_engine_does_not_load_it_twice(folder):
    (folder / "vllm" / "__init__.py").write_text("import sys; print('loaded', file=sys.stderr)\n")
    done = python(third_party(folder, "loud_patches", "    import vllm.greeting" + louder_patch(folder)), GREETING)
    assert answer(done) == "plain" or answer(done) == "plain!"
    assert done.stderr.count("loaded\n") == 1


def test_one_that_raises_in_build_leaves_the_import_unharmed(folder):
    bad = louder_patch(folder).replace("def louder(old):", "raise KeyError('gone')\n        def louder(old):")
    done = python(third_party(folder, "loud_patches", bad), GREETING)
    assert answer(done) == "plain"
    assert "failed: refused louder on vllm 0.1.5: KeyError: 'gone'; the engine runs without it" in done.stderr


def test_one_that_raises_in_its_probe_only_makes_the_finding_unknown(folder):
    bad = louder_patch(folder).replace("loud = ", "1 / 0; loud = ")
    code = """
        from engine_overlay.doctor.probes import probe_all
        import json
        print(json.dumps(probe_all('vllm', overlay=True)))
    """
    got = answer(python(third_party(folder, "loud_patches", bad), code))
    assert got["louder"]["on"] == ["UNKNOWN", "ZeroDivisionError: division by zero"]


def test_the_id_of_a_known_patch_cannot_be_taken(folder):
    third_party(folder, "more_patches", louder_patch(folder))
    done = python(with_louder(folder), GREETING)
    assert answer(done) == "plain!"
    assert "patch louder of more_patches 3.1 has the id of one that is loud_patches 3.1; it is left out" in done.stderr


def test_strict_refuses_to_start_and_says_why(folder):
    with_louder(folder)
    path = folder / "vllm" / "greeting.py"
    path.write_text(path.read_text().replace('"plain"', '"edited"'))
    done = python(folder, GREETING, ENGINE_OVERLAY="strict")
    assert done.returncode == 1
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith(
        "engine_overlay.importer.Refused: engine-overlay: ENGINE_OVERLAY=strict and louder is refused"
    )
    done = python(folder, GREETING)
    assert answer(done) == "edited" and "refused louder on vllm 0.1.5: drifted: body of Greeter.greet" in done.stderr


def test_strict_also_stops_for_one_that_raises(folder):
    bad = louder_patch(folder).replace("def louder(old):", "raise KeyError('gone')\n        def louder(old):")
    done = python(third_party(folder, "loud_patches", bad), GREETING, ENGINE_OVERLAY="strict")
    assert done.returncode == 1 and "Refused" in done.stderr.splitlines()[-1]


def test_a_refused_patch_that_was_asked_for_by_name_is_an_error(folder):
    with_louder(folder)
    (folder / "vllm" / "greeting.py").write_text("class Greeter:\n    def greet(self):\n        return 'new'\n")
    done = python(folder, GREETING, ENGINE_OVERLAY_ENABLE="louder")
    assert "engine-overlay: ERROR: refused louder" in done.stderr


@pytest.mark.parametrize("variable", ["ENGINE_OVERLAY_DISABLE", "ENGINE_OVERLAY_ENABLE", "ENGINE_OVERLAY_ONLY"])
def test_an_unknown_id_in_any_setting_is_one_line_and_the_engine_runs(folder, variable):
    done = python(with_louder(folder), GREETING, **{variable: "loduer"})
    answer(done)
    assert f"{variable}: there is no patch loduer, did you mean louder?" in done.stderr


def test_an_engine_folder_without_metadata_is_patched_by_its_bodies(tmp_path):
    folder = with_louder(engine(tmp_path, version=None))
    done = python(folder, GREETING)
    assert answer(done) == "plain!"
    assert "vllm does not say its version; only known bodies are patched" in done.stderr


def test_two_engines_in_one_process_are_decided_apart(folder):
    engine(folder, name="aphrodite", version="0.24.1")
    code = (
        GREETING
        + "\nimport aphrodite.greeting; from engine_overlay import status\n"
        + "print(json.dumps(status.report()['engines']))"
    )
    got = answer(python(with_louder(folder), code))
    assert [(e["name"], e["version"]) for e in got] == [("aphrodite", "0.24.1"), ("vllm", "0.1.5")]


def test_an_import_error_of_the_engine_goes_through(folder):
    with_louder(folder)
    path = folder / "vllm" / "greeting.py"
    path.write_text(path.read_text() + "import not_there\n")
    done = python(folder, GREETING)
    assert done.returncode == 1 and "No module named 'not_there'" in done.stderr.splitlines()[-1]
