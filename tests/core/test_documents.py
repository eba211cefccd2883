"""What the documents name is there: settings, commands, make targets, files and modules."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from engine_overlay.cli.main import COMMANDS
from engine_overlay.record import Patch
from engine_overlay.settings import VARIABLES

ROOT = Path(__file__).resolve().parents[2]
PAGES = ["docs/known-limitations.md", "docs/proxy.md"]
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
    targets = set(re.findall(r"^([a-z-]+):", text("Makefile"), re.MULTILINE))
    named = {word for line in re.findall(r"\bmake ((?:[a-z-]+ ?)+)", code(document)) for word in line.split()}
    assert named <= targets


@EACH
def test_files_that_are_named_exist(document: str) -> None:
    links = re.findall(r"\]\((?!http)([^)#]+)\)", text(document))
    paths = re.findall(r"(?<![\w/<~-])((?:patches|tests|bench|overlay|docs)/[\w./]+)(?![\w<])", code(document))
    missing = [path for path in (*links, *paths) if not (ROOT / path.rstrip("./")).exists()]
    assert not missing


@EACH
def test_modules_that_are_run_exist(document: str) -> None:
    modules = re.findall(r"python -m ((?:tests|bench)\.[\w.]+)", text(document))
    assert not [name for name in modules if not (ROOT / (name.replace(".", "/") + ".py")).is_file()]


def test_every_command_is_in_the_readme() -> None:
    named = set(re.findall(r"\bengine-overlay ([a-z]+)\b", code("README.md")))
    assert named >= set(COMMANDS) - {"fingerprint"}


def test_contributing_names_the_fields_of_a_record_in_their_order() -> None:
    rows = [row for row in text("CONTRIBUTING.md").splitlines() if row.startswith("   | `")]
    fields = [name for row in rows for name in re.findall(r"`(\w+)`", row.split("|")[1])]
    assert fields == list(Patch.__dataclass_fields__)


def test_contributing_names_a_target_that_exists() -> None:
    from tests.matrix.releases import pinned

    command = re.search(r"engine-overlay fingerprint (\S+)", text("CONTRIBUTING.md"))
    module, qualname = command[1].split(":")
    sources = [r.sources / r.engine / (module.replace(".", "/") + ".py") for r in pinned()]
    found = [path for path in sources if path.is_file()]
    if not found:
        pytest.skip("no engine's sources are in the cache")
    assert all(f"def {qualname.rpartition('.')[2]}(" in path.read_text(encoding="utf-8") for path in found)
