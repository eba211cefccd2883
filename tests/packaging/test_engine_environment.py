"""Into an environment that runs an engine, an installation brings itself and nothing else."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from engine_overlay.verify.releases import cache

from .support import NEEDS, Built, Environment, must

pytestmark = pytest.mark.packaging


def newcomers(python: Path, wheel: Path) -> list[str]:
    """Distributions that pip would install, without an index to get anything from."""
    pip = [sys.executable, "-m", "pip", "--python", python]
    out = must(*pip, "install", "--dry-run", "--no-index", "--quiet", "--report", "-", wheel)
    return [entry["metadata"]["name"] for entry in json.loads(out)["install"]]


def test_where_what_it_needs_is(installed: Environment, environment: Environment, built: Built) -> None:
    assert newcomers(environment.python, built.wheel) == ["engine-overlay"]
    assert newcomers(installed.python, built.wheel) == []


@pytest.mark.parametrize("name", ["env", "live", "live-stock"])
def test_where_an_engine_and_all_it_needs_are(name: str, built: Built) -> None:
    python = cache() / name / "bin" / "python"
    if not python.exists():
        pytest.skip(f"no environment {name} in the cache yet; the matrix and the live tests make them")
    there = must(python, "-c", "from importlib.metadata import distributions as d; print(*[x.name for x in d()])")
    assert {"packaging", "typer", "rich"} <= set(there.split())
    # The environment of the matrix has this checkout in it, editable: the wheel would take its place.
    allowed = (["engine-overlay"], []) if "engine-overlay" in there.split() else (["engine-overlay"],)
    assert newcomers(python, built.wheel) in allowed


def test_what_the_metadata_asks_for(installed: Environment) -> None:
    ask = "from importlib.metadata import requires; print(*[r for r in requires('engine-overlay') if 'extra' not in r])"
    assert must(installed.python, "-c", ask) == " ".join(NEEDS) + "\n"
