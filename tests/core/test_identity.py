"""What was done is known by identity: modules that run twice, wrappers of other tools, and reading back after undo."""

from __future__ import annotations

import functools
import importlib
import importlib.util
import sys
from types import FunctionType

import pytest
import wrapt

from tests.core.support import answer, engine, entry, louder_patch, python, third_party
from tests.core.test_commit import LOUD, PATHS, STOCK, execute, folder, ledger, patch, results  # noqa: F401

NAME = "vllm.greeting"


@pytest.fixture
def book(folder):  # noqa: F811
    return ledger(entry(patch(folder, *PATHS)))


def of_package(package, function):
    """The function as if its code stood in ``package``."""
    scope = {**function.__globals__, "__name__": f"{package}.tracing"}
    return FunctionType(function.__code__, scope, function.__name__, function.__defaults__, function.__closure__)


def test_a_module_whose_end_is_seen_twice_is_no_reload(book):
    module = execute(book)
    assert [book.module_executed(NAME, module) for _ in range(3)] == [[], [], []]
    assert results(module) == LOUD
    assert book.undo_all() == [] and results(module) == STOCK


def test_a_copy_that_somebody_runs_for_himself_changes_nothing(book):
    module = execute(book)
    spec = importlib.util.find_spec(NAME)
    copy = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(copy)
    assert book.module_executed(NAME, copy) == []
    assert (results(module), results(copy)) == (LOUD, STOCK)
    assert book.undo_all() == [] and results(module) == STOCK


def test_a_reload_is_patched_again_and_undo_reaches_the_classes_of_before(book):
    module = execute(book)
    old = module.Greeter
    for _ in range(2):
        book.module_executed(NAME, importlib.reload(module))
        assert results(module) == LOUD and old().greet() == "plain!" and old is not module.Greeter
        assert book.state("politer") == ("applied", "")
    assert book.undo_all() == []
    assert results(module) == STOCK and (old().greet(), old.still(), old().mood) == ("plain", "still", "calm")
    book.redo("politer")
    assert results(module) == LOUD and old().greet() == "plain"


def test_a_module_that_is_deleted_and_imported_anew_is_patched_beside_the_old_one(book):
    module = execute(book)
    del sys.modules[NAME]
    new = execute(book)
    assert new is not module and results(new) == results(module) == LOUD
    assert book.undo_all() == [] and results(new) == results(module) == STOCK


def test_a_reload_keeps_the_order_of_patches_that_lie_over_each_other(folder):  # noqa: F811
    lower = entry(patch(folder, "greeting:greet", patch_id="zlower"))
    above = entry(patch(folder, "greeting:greet", "greeting:Greeter.greet", patch_id="above", after=("zlower",)))
    book = ledger(lower, above)
    module = execute(book)
    book.module_executed(NAME, importlib.reload(module))
    assert (module.greet("x"), module.Greeter().greet()) == ("hello x!!", "plain!")
    assert book.undo("zlower") == [] and module.greet("x") == "hello x!"
    assert book.undo_all() == [] and module.greet("x") == "hello x"


def test_a_reload_beneath_somebody_elses_grip_is_refused_aloud(folder):  # noqa: F811
    (folder / "vllm" / "later.py").write_text("def late():\n    return 'late'\n")
    book = ledger(entry(patch(folder, "greeting:greet", "later:late")))
    module, later = execute(book), execute(book, "later")
    later.late = functools.lru_cache(later.late)
    assert book.module_executed(NAME, importlib.reload(module)) == ["politer"]
    assert book.verdicts["politer"].code == "failed"
    assert "vllm.greeting was reloaded, and the patch cannot follow: politer: " in book.verdicts["politer"].reason


def test_no_second_overlay_puts_a_patch_in_again(book, folder):  # noqa: F811
    module = execute(book)
    second = ledger(entry(patch(folder, *PATHS)))
    execute(second)
    assert second.verdicts["politer"].code == "conflict"
    assert second.verdicts["politer"].reason == "greet has this patch in it already, and it is never put in twice"
    assert results(module) == LOUD
    assert book.undo_all() == [] and results(module) == STOCK


def passing(wrapped, instance, args, kwargs):
    seen.append((wrapped.__name__, type(instance).__name__))
    return wrapped(*args, **kwargs)


seen: list[tuple[str, str]] = []


@pytest.mark.parametrize(("package", "state"), [("ddtrace", "applied"), ("somebody", "displaced")])
def test_a_proxy_of_wrapt_over_a_patch_is_seen_and_undone_beneath(book, package, state):
    module = execute(book)
    for qualname in ("greet", "Greeter.greet", "Greeter.still", "Greeter.kind"):
        wrapt.wrap_function_wrapper(module, qualname, of_package(package, passing))
    found, why = book.state("politer")
    assert found == state and ("which passes calls on" in why if state == "applied" else "was put over" in why)
    assert results(module) == LOUD
    assert book.undo_all() == []
    seen.clear()
    assert results(module) == STOCK
    assert [name for name, _ in seen] == ["greet", "greet", "still", "still", "kind"]


def test_a_patch_goes_over_a_wrapper_that_only_watches(book):
    module = importlib.import_module(NAME)
    for qualname in ("greet", "Greeter.greet", "Greeter.still", "Greeter.kind"):
        wrapt.wrap_function_wrapper(module, qualname, of_package("opentelemetry", passing))
    execute(book)
    seen.clear()
    assert book.state("politer") == ("applied", "") and results(module) == LOUD
    # The wrapper of a method is told whose it is.
    assert ("greet", "Greeter") in seen
    assert book.undo_all() == [] and results(module) == STOCK


def test_the_marks_of_a_watching_wrapper_are_not_taken_over(folder):  # noqa: F811
    module = importlib.import_module(NAME)
    stock = module.greet
    watch = of_package("line_profiler", lambda *args: stock(*args))
    watch.__wrapped__, watch.__profiler_id__ = stock, 7
    module.greet = watch
    book = ledger(entry(patch(folder, "greeting:greet")))
    execute(book)
    assert module.greet("x") == "hello x!" and not hasattr(module.greet, "__profiler_id__")


def test_a_patch_does_not_go_over_a_wrapper_of_unknown_intent(book):
    module = importlib.import_module(NAME)
    wrapt.wrap_function_wrapper(module, "Greeter.greet", of_package("somebody", passing))
    execute(book)
    assert book.verdicts["politer"].code == "conflict"
    assert "Greeter.greet was already replaced by somebody.tracing.passing in " in book.verdicts["politer"].reason
    assert results(module) == STOCK


def test_undo_reads_back_and_names_what_is_left(book):
    module = execute(book)
    module.kept = module.greet
    (line,) = book.undo_all()
    assert line.startswith("politer: vllm.greeting.kept still leads to vllm.greeting.greet (patch politer); restart")
    assert results(module) == STOCK


def test_what_is_held_in_place_hides_no_other_place(book):
    module = execute(book)
    module.kept, module.greet = module.greet, functools.lru_cache(module.greet)
    held, left = book.undo_all()
    assert "still calls it" in held and left.startswith("politer: vllm.greeting.kept still leads to ")


def test_a_cache_over_a_patch_cannot_be_spliced_and_is_named(book):
    module = execute(book)
    module.greet = functools.lru_cache(module.greet)
    (line,) = book.undo_all()
    assert line.startswith("politer: ") and line.endswith("was put over it and still calls it; undo that first")
    assert module.greet("x") == "hello x!"


# -- other tools' finders, in fresh interpreters

HOOKS = "import wrapt; [wrapt.register_post_import_hook(HOOK, n) for n in ('vllm', 'vllm.greeting')]\n"
OURS = "from engine_overlay import commit, importer; importer.install('api')\n"
HIDING = """
import importlib.util, sys
class Hiding:
    def __init__(self, held):
        self.create_module = lambda spec: held().create_module(spec)
        self.exec_module = lambda module: held().exec_module(module)
class Finder:
    busy = set()
    def find_spec(self, name, path=None, target=None):
        if name in self.busy:
            return None
        self.busy.add(name)
        spec = importlib.util.find_spec(name)
        self.busy.discard(name)
        if spec is not None and spec.loader is not None:
            spec.loader = Hiding(lambda held=spec.loader: held)
        return spec
sys.meta_path.insert(0, Finder())
"""
RESULTS = """
import json
from vllm.greeting import Greeter
on = Greeter().greet()
left = commit.undo_all()
print(json.dumps([on, left, Greeter().greet()]))
"""


@pytest.mark.parametrize("tool", [HOOKS, HIDING, HOOKS + HIDING, HIDING + HOOKS], ids=["wrapt", "hiding", "a", "b"])
@pytest.mark.parametrize("first", ["tool", "overlay"])
def test_another_tools_finder_makes_no_patch_go_in_twice(tmp_path, tool, first):
    greeting = third_party(engine(tmp_path), "loud_patches", louder_patch(tmp_path))
    tool = tool.replace("HOOK", "lambda m: None")
    code = (tool + OURS if first == "tool" else OURS + tool) + "import importlib.util\n"
    code += "importlib.util.find_spec('vllm.greeting')\n" + RESULTS
    assert answer(python(greeting, code)) == ["plain!", [], "plain"]


def test_what_a_post_import_hook_puts_over_a_function_comes_over_the_patch(tmp_path):
    greeting = third_party(engine(tmp_path), "loud_patches", louder_patch(tmp_path))
    hook = (
        "lambda m: hasattr(m, 'Greeter') and wrapt.wrap_function_wrapper("
        "m, 'Greeter.greet', lambda w, i, a, k: '<' + w(*a, **k) + '>')"
    )
    assert answer(python(greeting, OURS + HOOKS.replace("HOOK", hook) + RESULTS)) == ["<plain!>", [], "<plain>"]
