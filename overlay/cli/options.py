"""Parameters that several commands have, said once."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from engine_overlay.record import ENGINES

Engine = Enum("Engine", {name: name for name in ENGINES}, type=str)  # type: ignore[misc]

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, whole and nothing else, on standard output.")]
OnlyEngine = Annotated[Engine | None, typer.Option("--engine", help="Only this engine.")]
Sources = Annotated[
    Path | None,
    typer.Option("--sources", metavar="FOLDER", help="A folder that holds an engine's package, not the installed one."),
]
PatchId = Annotated[str, typer.Argument(metavar="ID", help='A patch id, as "engine-overlay list" shows them.')]
