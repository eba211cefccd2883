"""``engine-overlay fingerprint TARGET``: the body hash to write into a patch record."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from engine_overlay import engines, verdict
from engine_overlay.cli.main import fail
from engine_overlay.cli.options import AsJson
from engine_overlay.cli.tables import say, show_json
from engine_overlay.record import ABSENT, RecordError, Target

EXAMPLES = (
    "engine-overlay fingerprint parser.parser_manager:ParserManager.get_parser",
    "engine-overlay fingerprint parser.parser_manager:ParserManager.get_parser --sources ~/engines/*",
)
EXITS = {0: "every target has a body", 1: "one has none", 2: "the call was not understood"}
MANY = ("--sources",)


def command(
    target: Annotated[
        list[str], typer.Argument(metavar="TARGET...", help="module:qualified.name, the module without the engine's.")
    ],
    sources: Annotated[
        list[Path] | None,
        typer.Option("--sources", metavar="FOLDER...", help="Folders that hold an engine's package; default: here."),
    ] = None,
    json: AsJson = False,
) -> int:
    """Print the body hash of functions of an engine, as a patch record names what it was written against.

    Comments, layout and docstrings do not count. A name that is not defined has the body "absent". With several
    folders there is a line for each release.

    JSON: a list of objects with engine, target, body (null when it cannot be read) and why.
    """
    paths = [[str(folder)] for folder in sources] if sources else [None]
    found = [engine for path in paths for engine in engines.installed(path)]
    if not found:
        return fail("fingerprint", "no engine was found", "install one, or give --sources")
    rows = []
    for path in target:
        try:
            wanted = Target(path=path, bodies=(ABSENT,))
        except RecordError as error:
            return fail("fingerprint", str(error), "write it like parser.qwen3:Qwen3Parser.extract_reasoning")
        for engine in found:
            body, why = verdict.body_of(engine, wanted)
            rows.append({"engine": engine.label, "target": path, "body": body, "why": why})
    if json:
        show_json(rows)
    else:
        for row in rows:
            say(f"{row['engine']:28} {row['target']} {row['body'] or row['why']}")
    return 1 if any(row["body"] is None for row in rows) else 0
