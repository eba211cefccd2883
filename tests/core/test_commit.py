"""Putting in, reading back and taking out, on live modules."""

import functools
import importlib
import sys

import pytest

from engine_overlay import commit, engines, verdict
from engine_overlay.record import ABSENT, Target
from engine_overlay.settings import Settings
from tests.core.support import body, catalog, engine, entry, louder, record

PATHS = (
    "greeting:greet",
    "greeting:Greeter.greet",
    "greeting:Greeter.still",
    "greeting:Greeter.kind",
    "greeting:Greeter.mood",
)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    engine(tmp_path, user="from vllm.greeting import greet\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    for name in [n for n in sys.modules if n.partition(".")[0] == "vllm"]:
        monkeypatch.delitem(sys.modules, name)
    yield tmp_path
    for name in [n for n in sys.modules if n.partition(".")[0] == "vllm"]:
        del sys.modules[name]


def patch(folder, *paths, patch_id="politer", **changes):
    targets = tuple(Target(path=p, bodies=(body(folder, p),)) for p in paths)
    return record(paths[0], ("000000000000",), patch_id=patch_id, **{"targets": targets, **changes})


def marks(word):
    """A build whose replacements put what they replace into ``word(...)``."""

    def marking(old):
        return functools.wraps(old)(lambda *args: f"{word}({old(*args)})")

    return lambda engine, originals: {path: marking(old) for path, old in originals.items()}


def ledger(*entries):
    found = engines.locate("vllm")
    known = catalog(*entries)
    return commit.Ledger(found, known, verdict.decide(known, found, Settings()))


def execute(book, name="greeting"):
    module = importlib.import_module(f"vllm.{name}")
    book.module_executed(f"vllm.{name}", module)
    return module


def results(module):
    g = module.Greeter()
    return module.greet("x"), g.greet(), module.Greeter.still(), g.still(), module.Greeter.kind(), g.mood


STOCK = ("hello x", "plain", "still", "still", "Greeter", "calm")
LOUD = tuple(word + "!" for word in STOCK)


def test_every_kind_of_target_goes_in_and_out_again(folder):
    book = ledger(entry(patch(folder, *PATHS)))
    module = execute(book)
    assert results(module) == LOUD and book.state("politer") == ("applied", "")
    assert module.greet.__name__ == "greet" and module.greet.__engine_overlay__ == "politer"
    assert book.undo("politer") == []
    assert results(module) == STOCK and book.state("politer")[0] == "undone"
    assert not hasattr(module.greet, "__engine_overlay__")
    book.redo("politer")
    assert results(module) == LOUD


def test_an_added_name_is_taken_away_again(folder):
    new = record("greeting:Greeter.new", (ABSENT,))
    book = ledger(entry(new, build=lambda engine, originals: {"greeting:Greeter.new": lambda self: "new"}))
    module = execute(book)
    assert module.Greeter().new() == "new"
    book.undo("politer")
    assert "new" not in vars(module.Greeter)


def test_an_alias_taken_before_is_repaired_and_undone(folder):
    user = importlib.import_module("vllm.user")
    book = ledger(entry(patch(folder, "greeting:greet")))
    execute(book)
    assert user.greet("x") == "hello x!"
    book.undo("politer")
    assert user.greet("x") == "hello x"


def test_a_group_waits_until_all_its_modules_have_run(folder):
    (folder / "vllm" / "later.py").write_text("def late():\n    return 'late'\n")
    a = patch(folder, "greeting:greet", group="g")
    b = patch(folder, "later:late", patch_id="other", group="g")
    book = ledger(entry(a), entry(b))
    module = execute(book)
    assert module.greet("x") == "hello x"
    assert book.state("politer") == ("staged", "waits for other to go in")
    assert book.state("other") == ("staged", "waits for vllm.later to be imported")
    later = execute(book, "later")
    assert (module.greet("x"), later.late()) == ("hello x!", "late!")
    book.undo("other")
    assert (module.greet("x"), later.late()) == ("hello x", "late")


@pytest.mark.parametrize(
    ("build", "reason"),
    [
        (lambda engine, originals: 1 / 0, "ZeroDivisionError: division by zero"),
        (lambda engine, originals: {}, "TypeError: build() must return exactly its targets; differs in greeting:greet"),
        (lambda engine, originals: {"greeting:greet": 7}, "TypeError: build() returned int, which is neither"),
    ],
)
def test_one_that_raises_takes_its_group_out_and_leaves_the_others(folder, build, reason):
    a = entry(patch(folder, "greeting:greet", group="g"), build=build)
    b = entry(patch(folder, "greeting:Greeter.greet", patch_id="other", group="g"))
    c = entry(patch(folder, "greeting:Greeter.still", patch_id="third"))
    d = entry(patch(folder, "greeting:Greeter.kind", patch_id="fourth", requires=("other",)))
    book = ledger(a, b, c, d)
    module = execute(book)
    assert results(module) == ("hello x", "plain", "still!", "still!", "Greeter", "calm")
    assert book.verdicts["politer"].code == "failed" and book.verdicts["politer"].reason.startswith(reason)
    assert "its group goes in whole or not at all" in book.verdicts["other"].reason
    assert book.verdicts["fourth"].code == "conflict" and book.verdicts["third"].code == "apply"


def test_a_target_that_somebody_replaced_first_is_a_conflict(folder):
    module = importlib.import_module("vllm.greeting")
    original = module.greet
    module.greet = lambda name: "other tool"
    book = ledger(entry(patch(folder, "greeting:greet")))
    execute(book)
    assert book.verdicts["politer"].code == "conflict"
    assert "greet was already replaced by tests.core.test_commit" in book.verdicts["politer"].reason
    assert module.greet("x") == "other tool" and original("x") == "hello x"


def test_a_wrapper_put_on_top_is_seen_and_undone_beneath(folder):
    book = ledger(entry(patch(folder, "greeting:greet")))
    module = execute(book)
    ours = module.greet

    @functools.wraps(ours)
    def tracer(name):
        return f"<{ours(name)}>"

    module.greet = tracer
    state, why = book.state("politer")
    assert state == "displaced" and "was put over" in why
    assert book.undo("politer") == []
    assert module.greet is tracer and module.greet("x") == "<hello x>"
    assert book.state("politer")[0] == "undone"


def test_a_wrapper_that_hides_what_it_holds_is_reported_not_broken(folder):
    book = ledger(entry(patch(folder, "greeting:greet")))
    module = execute(book)
    held = {"it": module.greet}

    def tracer(name):
        return held["it"](name)

    tracer.__wrapped__ = module.greet
    module.greet = tracer
    (line,) = book.undo("politer")
    assert "still calls it; undo that first" in line
    assert module.greet("x") == "hello x!" and book.state("politer")[0] == "displaced"


def test_stacked_patches_come_out_in_order(folder):
    a = entry(patch(folder, "greeting:greet"))
    b = entry(patch(folder, "greeting:greet", patch_id="louder", requires=("politer",)))
    book = ledger(a, b)
    module = execute(book)
    assert module.greet("x") == "hello x!!"
    assert book.state("politer") == book.state("louder") == ("applied", "")
    assert book.undo("politer") == []
    assert module.greet("x") == "hello x"


def test_one_that_lies_over_another_stays_in_when_the_other_goes(folder):
    a = entry(patch(folder, "greeting:greet", patch_id="zlower"))
    b = entry(patch(folder, "greeting:greet", patch_id="above", after=("zlower", "not_installed")))
    book = ledger(a, b)
    module = execute(book)
    assert module.greet("x") == "hello x!!"
    assert book.undo("zlower") == []
    assert module.greet("x") == "hello x!" and book.state("above")[0] == "applied"
    book.undo("above")
    assert module.greet("x") == "hello x"
    book.redo("above")
    book.redo("zlower")
    assert module.greet("x") == "hello x!!" and book.undo_all() == [] and module.greet("x") == "hello x"


def test_one_that_waits_for_what_it_requires_goes_in_beneath_what_lies_over_it(folder):
    base = patch(folder, "greeting:greet", patch_id="base")
    middle = patch(folder, "greeting:Greeter.greet", patch_id="middle", requires=("base",))
    top = patch(folder, "greeting:Greeter.greet", patch_id="top", after=("middle",))
    book = ledger(*(entry(one, marks(one.id)) for one in (base, middle, top)))
    module = execute(book)
    for _ in range(2):
        assert module.Greeter().greet() == "top(middle(plain))"
        assert book.undo("base") == [] and module.Greeter().greet() == "top(plain)"
        for patch_id in ("middle", "base"):
            book.redo(patch_id)
    assert book.undo_all() == [] and module.Greeter().greet() == "plain"


def test_one_that_lies_over_another_does_not_wait_for_modules_of_the_other(folder):
    (folder / "vllm" / "later.py").write_text("def late():\n    return 'late'\n")
    lower = entry(patch(folder, "greeting:greet", "later:late", patch_id="zlower"), build=marks("lower"))
    above = entry(patch(folder, "greeting:greet", patch_id="above", after=("zlower",)), build=marks("above"))
    top = entry(patch(folder, "greeting:greet", patch_id="atop", after=("above", "zlower")), build=marks("top"))
    book = ledger(lower, above, top)
    module = execute(book)
    assert module.greet("x") == "top(above(hello x))"
    assert book.state("zlower") == ("staged", "waits for vllm.later to be imported")
    later = execute(book, "later")
    assert (module.greet("x"), later.late()) == ("top(above(lower(hello x)))", "lower(late)")
    assert [book.state(i)[0] for i in ("zlower", "above", "atop")] == ["applied"] * 3
    assert book.undo_all() == [] and (module.greet("x"), later.late()) == ("hello x", "late")


def test_it_waits_for_what_it_requires(folder):
    (folder / "vllm" / "later.py").write_text("def late():\n    return 'late'\n")
    lower = entry(patch(folder, "later:late", patch_id="zlower"))
    above = entry(patch(folder, "greeting:greet", patch_id="above", requires=("zlower",)))
    book = ledger(lower, above)
    module = execute(book)
    assert module.greet("x") == "hello x" and book.state("above") == ("staged", "waits for zlower to go in")
    execute(book, "later")
    assert module.greet("x") == "hello x!"


def test_a_reloaded_module_is_patched_again(folder):
    book = ledger(entry(patch(folder, "greeting:Greeter.greet")))
    module = execute(book)
    book.module_executed("vllm.greeting", importlib.reload(module))
    assert module.Greeter().greet() == "plain!" and book.state("politer")[0] == "applied"


def test_a_subclass_that_copied_the_method_is_repaired(folder):
    module = importlib.import_module("vllm.greeting")

    class Copy(module.Greeter):
        hail = module.Greeter.greet

    book = ledger(entry(patch(folder, "greeting:Greeter.greet")))
    execute(book)
    assert Copy().hail() == "plain!"
    assert louder(lambda: "a")() == "a!"
