"""``engine-overlay new ID``: the beginning of a patch and its test, here in the checkout or as a package of its own."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Annotated

import typer

from engine_overlay import catalog, engines, settings, verdict
from engine_overlay.cli.main import fail
from engine_overlay.cli.options import Engine, Sources
from engine_overlay.cli.tables import say
from engine_overlay.record import RecordError, Target

EXAMPLES = (
    "engine-overlay new lost_commas --target parser.qwen3:Qwen3Parser.extract_reasoning",
    "engine-overlay new lost_commas --target parser.qwen3:Qwen3Parser.extract_reasoning --area parsing",
)
EXITS = {0: "the files were written", 2: "the call was not understood, or would write over something"}

_ID = re.compile(r"[a-z][a-z0-9_]*\Z")
_AREA = re.compile(r"[a-z][a-z0-9_]*\Z")


def command(
    id: Annotated[str, typer.Argument(metavar="ID", help="The id of the patch: a lower-case name, like lost_commas.")],
    target: Annotated[str, typer.Option("--target", metavar="PATH", help="What it replaces, as module:name.")],
    engine: Annotated[Engine | None, typer.Option("--engine", help="Which engine, when both are installed.")] = None,
    sources: Sources = None,
    area: Annotated[
        str | None,
        typer.Option("--area", metavar="AREA", help="Write it into this checkout; else a package of its own."),
    ] = None,
    into: Annotated[
        Path, typer.Option("--into", metavar="FOLDER", help="Where to write; default: here.", show_default=False)
    ] = Path("."),
) -> int:
    """Write the beginning of a patch of your own, and of its test.

    The record is filled in with the installed engine's version and the body of the function, so that it goes in here
    and nowhere else. What you have to write is marked TODO, and the test fails until none is left. Nothing that exists
    is written over.
    """
    name = settings.normal_id(id)
    if not _ID.match(name):
        return fail("new", f"{id!r} is not a lower-case Python name", "choose an id like lost_commas")
    if name in catalog.load().entries:
        return fail("new", f"there is a patch {name} already", "choose another id")
    found = engines.installed([str(sources)] if sources else None)
    found = [here for here in found if engine is None or here.name == engine.value]
    if len(found) != 1:
        seen = " and ".join(here.label for here in found) or "no engine"
        return fail("new", f"{seen} found here", "say which one with --engine, or give --sources")
    (here,) = found
    try:
        replaced = Target(path=target, bodies=("absent",))
    except RecordError as error:
        return fail("new", str(error), "write it like parser.qwen3:Qwen3Parser.extract_reasoning")
    body, why = verdict.body_of(here, replaced)
    if body is None:
        return fail("new", why, f"look into {here.root}")
    if area is not None:
        if not _AREA.match(area) or not (into / "patches" / area).is_dir():
            where = f"patches/{area} in {into}"
            return fail("new", f"there is no folder {where}", "call it in a checkout, or name one with --into")
        files = _in_checkout(name, area, into)
    else:
        files = _package(name, into)
    for path, template in files.items():
        if path.exists():
            return fail("new", f"{path} exists", "choose another id or another folder")
        files[path] = _filled(template, name, here, replaced, body)
    for path, text in files.items():
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        except OSError as error:
            return fail("new", f"{path} cannot be written ({error.strerror})", "choose another folder with --into")
        say(f"wrote {path}")
    test = next(path for path in files if path.name.startswith("test_"))
    say(f"next: fill in what is marked TODO; the test fails until then: python -m pytest {test}")
    return 0


def _in_checkout(name: str, area: str, root: Path) -> dict[Path, str]:
    module = f"engine_overlay.patches.{area}.{name}"
    return {
        root / "patches" / area / f"{name}.py": _PATCH,
        root / "tests" / "patches" / area / f"test_{name}.py": _TEST.replace("@MODULE@", module),
    }


def _package(name: str, into: Path) -> dict[Path, str]:
    folder = into / f"engine-overlay-{name.replace('_', '-')}"
    return {
        folder / "pyproject.toml": _PYPROJECT,
        folder / "src" / f"engine_overlay_{name}.py": _PATCH,
        folder / "tests" / f"test_{name}.py": _TEST.replace("@MODULE@", f"engine_overlay_{name}"),
    }


def _filled(template: str, name: str, engine: engines.Engine, target: Target, body: str) -> str:
    version = engine.version or "0"
    return (
        template.replace("@ID@", name)
        .replace("@DASHED@", name.replace("_", "-"))
        .replace("@ENGINE@", engine.name)
        .replace("@VERSION@", version)
        .replace("@PATH@", json.dumps(target.path))
        .replace("@BODY@", json.dumps(body))
        .replace("@MODULE_OF_TARGET@", target.module)
    )


_PATCH = '''"""TODO: what the patch does, in one line.

Symptom: TODO: the literal bad output that a user sees.

Cause: TODO: what in the engine makes it so.

Change: TODO: what the patch makes different, and what stays.

Risk: TODO: what could be worse with it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from engine_overlay.engines import Engine
from engine_overlay.record import Finding, Outcome, Patch, Range, Target

_TARGET = @PATH@

PATCH = Patch(
    id="@ID@",
    engines={"@ENGINE@": Range("@VERSION@", "@VERSION@")},
    targets=(Target(path=_TARGET, bodies=(@BODY@,)),),
    reads=(),
    upstream=(),
    relationship="workaround",
    introduced_in={"@ENGINE@": "@VERSION@"},
    fixed_in={"@ENGINE@": None},
    superseded_by=None,
    group=None,
    requires=(),
    conflicts=(),
    after=(),
    default=True,
    default_reason="TODO",
    scope=("server",),
    native_alternative=None,
    remove_when="TODO",
)


def build(engine: Engine, originals: Mapping[str, Any]) -> Mapping[str, Any]:
    """The replacement, which calls the original. Import the engine in here only."""
    original = originals[_TARGET]

    def replacement(*args: Any, **kwargs: Any) -> Any:
        # TODO: mend what goes in or what comes out.
        return original(*args, **kwargs)

    return {_TARGET: replacement}


def probe(engine: Engine) -> Finding:
    """The smallest reproduction on the engine's real classes, on the CPU, in under a second."""
    engine.module("@MODULE_OF_TARGET@")
    # TODO: PRESENT with the faulty output as evidence, ABSENT with the right one.
    return Finding(Outcome.UNKNOWN, "the probe is not written yet")
'''

_TEST = '''"""The fault is there without the patch, gone with it, back after undo, and a changed body is refused."""

from __future__ import annotations

import subprocess
import sys

from engine_overlay import catalog, engines
from engine_overlay.record import Outcome

import @MODULE@ as patch


def finding(*lines: str) -> str:
    """The outcome of the probe in a process of its own, after these lines."""
    code = "\\n".join(
        [
            *lines,
            "from engine_overlay import engines",
            "import @MODULE@ as patch",
            "(engine,) = [e for e in engines.installed() if e.name in patch.PATCH.engines]",
            "print(patch.probe(engine).outcome.value)",
        ]
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.split()[-1]


ON = ("from engine_overlay import commit, importer", "importer.install('api')")


def test_nothing_is_left_to_fill_in() -> None:
    assert "TODO" not in open(patch.__file__, encoding="utf-8").read()


def test_the_patch_is_known_and_described() -> None:
    entry = catalog.entry_of(patch, "test")
    assert entry.patch.id == "@ID@"


def test_fault_without_the_patch_and_not_with_it() -> None:
    assert finding("import os", "os.environ['ENGINE_OVERLAY'] = 'off'") == Outcome.PRESENT.value
    assert finding(*ON) == Outcome.ABSENT.value


def test_undo_brings_the_fault_back() -> None:
    module = "import @ENGINE@.@MODULE_OF_TARGET@"
    assert finding(*ON, module, "commit.undo('@ID@')") == Outcome.PRESENT.value


def test_a_changed_body_is_refused() -> None:
    (engine,) = [e for e in engines.installed() if e.name in patch.PATCH.engines]
    from dataclasses import replace

    from engine_overlay import settings, verdict

    other = tuple(replace(target, bodies=("0" * 12,)) for target in patch.PATCH.targets)
    entry = replace(catalog.entry_of(patch, "test"), patch=replace(patch.PATCH, targets=other))
    known = catalog.Catalog(entries={"@ID@": entry})
    assert verdict.decide(known, engine, settings.Settings())["@ID@"].refused
'''

_PYPROJECT = """[build-system]
requires = ["setuptools>=77"]
build-backend = "setuptools.build_meta"

[project]
name = "engine-overlay-@DASHED@"
version = "0.1.0"
description = "A patch for engine-overlay: TODO"
requires-python = ">=3.10"
dependencies = ["engine-overlay"]

[project.entry-points."engine_overlay.patches"]
@ID@ = "engine_overlay_@ID@"

[tool.setuptools]
package-dir = {"" = "src"}
py-modules = ["engine_overlay_@ID@"]
"""
