"""``engine-overlay diff ID``: each function that a patch replaces, as installed and as it is with the patch in."""

from __future__ import annotations

import difflib
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from json import dumps, loads
from pathlib import Path
from typing import Annotated, Any

import typer

from engine_overlay import catalog, engines, fingerprint, settings, verdict
from engine_overlay.cli.main import fail
from engine_overlay.cli.options import AsJson, OnlyEngine, PatchId
from engine_overlay.cli.tables import clean, show_diff, show_json

EXAMPLES = ("engine-overlay diff spelled_markers", "engine-overlay diff spelled_markers --engine vllm --json")
EXITS = {
    0: "the difference was shown",
    1: "the patch does not go in here",
    2: "no such patch, no engine, or the call was not understood",
}

_MARK = "engine-overlay-diff:"


def command(
    id: PatchId,
    engine: OnlyEngine = None,
    json: AsJson = False,
    live: Annotated[bool, typer.Option("--live", hidden=True)] = False,
) -> int:
    """Show each function that a patch replaces, as installed, beside what stands there with the patch in.

    The second side is read back from the live function in a process of its own, which imports the engine, so that it
    is what really runs, wrappers included. No file is changed.

    JSON: a list of objects with engine, target, installed and effective (sources), file, line, state, state_reason.
    """
    name = settings.normal_id(id)
    only = engine and engine.value
    if live:
        print(_MARK + dumps(effective(name, only)))
        return 0
    known = catalog.load()
    if name not in known.entries:
        guess = settings.suggest(name, known.entries)
        return fail("diff", f"there is no patch {name}{guess}", '"engine-overlay list" shows the known ones')
    found = [here for here in engines.installed() if only in (None, here.name)]
    if not found:
        return fail("diff", "no engine is installed here", "install vllm or aphrodite-engine first")
    data, out = [], False
    for here in found:
        v = verdict.decide(known, here, settings.read())[name]
        if v.code != verdict.APPLY:
            print(clean(f"{here.label}: {name} does not go in: {v.code}: {v.reason}"), file=sys.stderr)
            out = True
            continue
        sources, why = _effective_elsewhere(name, here.name)
        if sources is None:
            return fail("diff", f"{here.label} cannot be imported ({why})", 'run "engine-overlay doctor"')
        for target in known.entries[name].patch.targets:
            before, after = installed_source(here, target), sources[target.path]
            data.append({"engine": here.label, "target": target.path, **after, "installed": before})
    if json:
        show_json(data)
    else:
        show_diff("\n\n".join("\n".join(_lines(row, name)) for row in data))
    return 1 if out else 0


def installed_source(engine: engines.Engine, target: Any) -> str:
    """The source of a target in the engine's file; empty for one that the patch adds."""
    path = engine.source(target.module)
    node = fingerprint.find(fingerprint.tree(path), target.qualname) if path else None
    return "" if node is None else source_of(path, node)


def source_of(path: Path, node: Any) -> str:
    """The lines of a definition, decorators included, without the indentation of its class."""
    first = min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", ()))])
    lines = path.read_text(encoding="utf-8").splitlines()[first - 1 : node.end_lineno]
    return textwrap.dedent("\n".join(lines)) + "\n"


def _lines(row: dict[str, Any], name: str) -> Iterator[str]:
    yield from (
        line.rstrip("\n")
        for line in difflib.unified_diff(
            row["installed"].splitlines(True),
            row["effective"].splitlines(True),
            f"{row['target']} ({row['engine']}, installed)",
            f"{row['target']} (with {name}, from {row['file']}:{row['line']})",
            n=1_000_000,
        )
    )
    if row["state"] != "applied":
        yield f"# {name} is {row['state']}: {row['state_reason']}"


def effective(name: str, engine_name: str) -> dict[str, dict[str, Any]]:
    """In a process of its own: path -> the source of what stands at each target, read from the live object."""
    import importlib
    import inspect

    from engine_overlay import commit, importer, replace

    importer.install("api")
    ledger = importer.overlay.ledger(engine_name)
    for module in ledger.wanted_modules():
        importlib.import_module(module)
    sources = {}
    for target in ledger.entry(name).patch.targets:
        owner, attribute = replace.resolve(sys.modules[f"{engine_name}.{target.module}"], target.qualname)
        live = vars(owner).get(attribute)
        function = live.fget if isinstance(live, property) else getattr(live, "__func__", live)
        function = getattr(function, "func", function)
        try:
            text, line = inspect.getsource(function.__code__), function.__code__.co_firstlineno
            file = Path(function.__code__.co_filename).name
        except (OSError, TypeError, AttributeError):
            text, line, file = f"{function!r}\n", 0, ""
        state, why = commit.state(name), ledger.state(name)[1]
        sources[target.path] = {
            "effective": textwrap.dedent(text),
            "file": file,
            "line": line,
            "state": state,
            "state_reason": why,
        }
    return sources


def _effective_elsewhere(name: str, engine_name: str) -> tuple[dict[str, dict[str, Any]] | None, str]:
    command = [sys.executable, "-m", "engine_overlay.cli", "diff", name, "--engine", engine_name, "--live"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    for line in done.stdout.splitlines():
        if line.startswith(_MARK):
            return loads(line[len(_MARK) :]), ""
    return None, (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
