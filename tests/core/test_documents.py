"""What the documents name is there: settings, commands, make targets, files and modules."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from engine_overlay.cli.main import COMMANDS
from engine_overlay.record import Patch
from engine_overlay.settings import VARIABLES
from tests import lanes

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted(str(path.relative_to(ROOT)) for path in (ROOT / "docs").rglob("*.md"))
DOCUMENTS = ["README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md", *PAGES]
EACH = pytest.mark.parametrize("document", DOCUMENTS)


def text(document: str) -> str:
    return (ROOT / document).read_text(encoding="utf-8")


def code(document: str) -> str:
    """Everything in back-ticks, and indented lines."""
    whole = text(document)
    return "\n".join([*re.findall(r"`([^`\n]+)`", whole), *re.findall(r"^\s{4,}(\S.*)$", whole, re.MULTILINE)])


def test_settings_table_is_that_of_the_settings() -> None:
    rows = re.findall(r"^\| `(ENGINE_OVERLAY\w*)` \| (.*) \|$", text("README.md"), re.MULTILINE)
    assert rows == list(VARIABLES.items())


@EACH
def test_settings_that_are_named_exist(document: str) -> None:
    assert set(re.findall(r"ENGINE_OVERLAY\w*", text(document))) <= set(VARIABLES)


@EACH
def test_commands_that_are_named_exist(document: str) -> None:
    named = re.findall(r"\bengine-overlay ([a-z]+)\b", code(document))
    assert set(named) <= set(COMMANDS)


@EACH
def test_make_targets_that_are_named_exist(document: str) -> None:
    targets = {*re.findall(r"^([a-z-]+):", text("Makefile"), re.MULTILINE), *(f"test-{part}" for part in lanes.PARTS)}
    named = {word for line in re.findall(r"\bmake ((?:[a-z-]+ ?)+)", code(document)) for word in line.split()}
    assert named <= targets


def test_make_has_a_target_for_each_part_of_the_tests() -> None:
    (named,) = re.findall(r"^PARTS := (.*)$", text("Makefile"), re.MULTILINE)
    assert sorted(named.split()) == sorted(lanes.PARTS)


@EACH
def test_files_that_are_named_exist(document: str) -> None:
    links = re.findall(r"\]\((?!http)([^)#]+)\)", text(document))
    folders = "patches|tests|bench|overlay|docs|examples"
    paths = re.findall(rf"(?<![\w/<~-])((?:{folders})/[\w./-]+)(?![\w<])", code(document))
    named = [(ROOT / document).parent / link for link in links] + [ROOT / path.rstrip("./-") for path in paths]
    assert not [path for path in named if not path.exists()]


@EACH
def test_modules_that_are_run_exist(document: str) -> None:
    modules = re.findall(r"python -m ((?:tests|bench|examples|docs)\.[\w.]+)", text(document))
    paths = [ROOT / name.replace(".", "/") for name in modules]
    assert not [p for p in paths if not p.with_suffix(".py").is_file() and not (p / "__main__.py").is_file()]


def test_the_pages_of_the_patches_are_as_generated() -> None:
    from docs import generate

    assert generate.stale(generate.pages()) == []


def test_a_page_that_is_not_as_generated_is_named(tmp_path, monkeypatch) -> None:
    from docs import generate

    made = generate.pages()
    monkeypatch.setattr(generate, "ROOT", tmp_path)
    monkeypatch.setattr(generate, "FOLDER", tmp_path)
    copies = {tmp_path / path.name: words for path, words in made.items()}
    for path, words in copies.items():
        path.write_text(words, encoding="utf-8")
    assert generate.stale(copies) == []
    (tmp_path / "README.md").write_text("by hand", encoding="utf-8")
    (tmp_path / "spelled_markers.md").unlink()
    (tmp_path / "of_no_patch.md").touch()
    assert generate.stale(copies) == ["README.md", "of_no_patch.md", "spelled_markers.md"]


def test_every_command_is_in_the_readme() -> None:
    named = set(re.findall(r"\bengine-overlay ([a-z]+)\b", code("README.md")))
    assert named >= set(COMMANDS) - {"fingerprint"}


def test_the_own_parsers_page_names_what_it_serves() -> None:
    from engine_overlay.text.formats import STOCK_CALLS, STOCK_REASONING, UNIFIED

    lines = text("docs/own-parser.md").splitlines()
    rows = [row.split("|") for row in lines if row.startswith("| ") and "_engine" in row]
    named = [{name for row in rows for name in re.findall(r"`(\w+)`", row[column])} for column in (2, 3, 4)]
    assert named == [set(STOCK_REASONING), set(STOCK_CALLS), set(UNIFIED)]
    for row in rows:
        (unified,) = re.findall(r"`(\w+)`", row[4])
        reasoning, calls = UNIFIED[unified]
        assert {STOCK_REASONING[name] for name in re.findall(r"`(\w+)`", row[2])} >= {reasoning}
        assert {STOCK_CALLS[name] for name in re.findall(r"`(\w+)`", row[3])} == {calls}


def test_contributing_names_the_fields_of_a_record_in_their_order() -> None:
    rows = [row for row in text("CONTRIBUTING.md").splitlines() if row.startswith("   | `")]
    fields = [name for row in rows for name in re.findall(r"`(\w+)`", row.split("|")[1])]
    assert fields == list(Patch.__dataclass_fields__)


def test_contributing_names_a_target_that_exists() -> None:
    from engine_overlay.verify.releases import pinned

    command = re.search(r"engine-overlay fingerprint (\S+)", text("CONTRIBUTING.md"))
    module, qualname = command[1].split(":")
    sources = [r.sources / r.engine / (module.replace(".", "/") + ".py") for r in pinned()]
    found = [path for path in sources if path.is_file()]
    if not found:
        pytest.skip("no engine's sources are in the cache")
    assert all(f"def {qualname.rpartition('.')[2]}(" in path.read_text(encoding="utf-8") for path in found)
