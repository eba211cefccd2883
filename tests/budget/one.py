"""One release behind real HTTP on its own engine core, overlay off and on, and the same requests to both.

    python -m tests.budget.one vllm-0.33.0 [PART OF A NAME]
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from engine_overlay.verify import releases
from tests.budget import requests
from tests.matrix import environment, store
from tests.serving import one as serving

LABELS = (
    "vllm-0.18.1",
    "vllm-0.20.2",
    "vllm-0.23.0",
    "vllm-0.28.0",
    "vllm-0.33.0",
    "aphrodite_engine-0.21.0",
    "aphrodite_engine-0.24.1",
)


class Server(serving.Server):
    """The API server on its own engine core."""

    MODULE = "tests.budget.deep_server"

    def __init__(self, release: releases.Release, folder: Path, *, overlay: bool) -> None:
        super().__init__(release, folder, overlay=overlay, parsers=("qwen3", requests.tool_parser(release)))


def run(label: str, sides: Iterable[str] = ("off", "on"), part: str = "") -> dict[str, Any]:
    """``{"release", "off": side, "on": side}``; a side is ``{"answers": {name: body}, "wrong": {name: what},
    "patches": {id: [verdict, state]}, "problems"}``. Raises ServerFailed.
    """
    release = releases.named(label)
    releases.fetch(release)
    result: dict[str, Any] = {"release": release.label}
    asked = {request.name: request for request in requests.all_requests(release)}
    for side in sides:
        folder = Path(tempfile.mkdtemp(prefix="engine-overlay-budget-"))
        try:
            with Server(release, folder, overlay=side == "on") as server:
                out = folder / "answers.json"
                command = ["-m", "tests.budget.client", label, str(server.port), str(out), part]
                environment.run(command, release.sources, overlay=False, check=True)
                answers = json.loads(out.read_text(encoding="utf-8"))
                status = server.status() or {"patches": [], "problems": []}
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        result[side] = {
            "answers": {name: body for name, (_, body) in answers.items()},
            "wrong": {name: bad for name, got in answers.items() if (bad := requests.wrong(asked[name], *got))},
            "patches": {p["id"]: [p["verdict"], p["loaded"]] for p in status["patches"]},
            "problems": status["problems"],
        }
    return result


def _files() -> list[Path]:
    here = Path(__file__).parent
    names = ("client", "deep_core", "deep_server", "one", "requests")
    serving_names = ("one", "requests", "scripted_core", "server", "tokens")
    others = [here.parent / "serving" / f"{name}.py" for name in serving_names]
    return [*(here / f"{name}.py" for name in names), *others, *store.overlay_files()]


def results(labels: Iterable[str]) -> dict[str, dict[str, Any]]:
    """The results by label, computed where none is kept."""
    chosen = [releases.named(label) for label in labels]
    return store.all_of(chosen, f"budget-{store.key(_files())}", lambda r: run(r.label), summary, print)


def summary(found: dict[str, Any]) -> str:
    counts = {side: len(found[side]["answers"]) - len(found[side]["wrong"]) for side in ("off", "on")}
    return f"{found['release']}: {counts['off']} -> {counts['on']} of {len(found['on']['answers'])} right"


def main(label: str, part: str = "") -> None:
    found = run(label, part=part)
    print(summary(found))
    for side in ("off", "on"):
        for name, what in found[side]["wrong"].items():
            print(f"{side}: {name}: {what}")


if __name__ == "__main__":
    main(*sys.argv[1:])
