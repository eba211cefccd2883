"""The body hash: blind to what does not change behaviour, sharp for what does, the same on every Python."""

import textwrap

import pytest

from engine_overlay import fingerprint

SOURCE = '''
class A:
    def f(self, x: int = 1):
        """Docstring."""
        return x + 1  # comment
'''


def of(source, name="A.f"):
    return fingerprint.of_source(textwrap.dedent(source), name)


def test_it_is_the_same_hash_on_every_supported_python():
    # Literal on purpose: records made on one Python are checked on others.
    assert of(SOURCE) == "97b717be358e"


@pytest.mark.parametrize(
    "other",
    [
        "class A:\n def f(self, x: int = 1):\n  return (x+1)",
        "class A:\n  @property\n  def f(self): ...\n  def f(self, x: int = 1):\n   return x + 1",
        'class A:\n  if True:\n    def f(self, x: int = 1):\n      "Other."\n      return x + 1',
    ],
)
def test_comments_docstrings_layout_and_place_do_not_count(other):
    assert of(other) == of(SOURCE)


@pytest.mark.parametrize(("old", "new"), [("x + 1", "x + 2"), ("= 1", "= 2"), ("int", "str"), ("def f", "async def f")])
def test_what_changes_behaviour_or_signature_counts(old, new):
    changed = of(SOURCE.replace(old, new, 1))
    assert changed is not None and changed != of(SOURCE)


def test_a_decorator_counts():
    assert of(SOURCE.replace("    def f", "    @cache\n    def f")) != of(SOURCE)


def test_what_is_not_defined_has_none():
    assert of(SOURCE, "A.g") is None and of(SOURCE, "B.f") is None and of("x = 1", "x") is not None


def test_a_changed_file_is_read_again(tmp_path):
    path = tmp_path / "m.py"
    path.write_text("def f(): return 1\n")
    first = fingerprint.of_file(path, "f")
    path.write_text("def f(): return 22\n")
    assert fingerprint.of_file(path, "f") != first
