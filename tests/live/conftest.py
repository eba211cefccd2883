"""One start of the real server for each of: with the overlay, switched off, without the package."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.live import environment, scenario, tiny_model
from tests.live.answers import Answer, Speller
from tests.live.scenario import Record
from tests.live.server import serve

_LOOK = {"PYTHONPROFILEIMPORTTIME": "1"}
# A worker in a process of its own: by default a single one lives in the engine core.
_WORKER = ("--distributed-executor-backend", "mp")


@pytest.fixture(scope="session")
def model() -> Path:
    return tiny_model.make(environment.cache() / "live-model")


@pytest.fixture(scope="session")
def speller(model: Path) -> Speller:
    return Speller(model)


@pytest.fixture(scope="session")
def on(model: Path, speller: Speller, tmp_path_factory: pytest.TempPathFactory) -> Record:
    """The installed overlay, with nothing set."""
    python = environment.prepare(overlay=True)
    state = tmp_path_factory.mktemp("state")
    with serve(python, model, *_WORKER, variables=_LOOK | {"ENGINE_OVERLAY_STATE_DIR": str(state)}) as server:
        return scenario.record(
            server,
            speller,
            lambda: scenario.status_by_command(python, state),
            lambda: scenario.doctor_by_command(python, server, state),
        )


@pytest.fixture(scope="session")
def off(model: Path, speller: Speller, tmp_path_factory: pytest.TempPathFactory) -> Record:
    """The same installation, switched off."""
    python = environment.prepare(overlay=True)
    state = tmp_path_factory.mktemp("state")
    variables = _LOOK | {"ENGINE_OVERLAY": "off", "ENGINE_OVERLAY_STATE_DIR": str(state)}
    with serve(python, model, *_WORKER, variables=variables) as server:
        return scenario.record(server, speller, lambda: scenario.status_by_command(python, state))


@pytest.fixture(scope="session")
def without(model: Path, speller: Speller) -> Record:
    """The engine in an environment that never had the package."""
    with serve(environment.prepare(overlay=False), model, *_WORKER, variables=_LOOK) as server:
        return scenario.record(server, speller, None)


@pytest.fixture(scope="session")
def other_parser(model: Path, speller: Speller) -> Callable[[str], dict[bool, Answer | str]]:
    """What a request with a thinking budget gets from a parser that does not name its markers, on or off."""

    @functools.cache
    def ask(mode: str) -> dict[bool, Answer | str]:
        python = environment.prepare(overlay=True)
        with serve(python, model, variables={"ENGINE_OVERLAY": mode}, reasoning_parser="deepseek_v3") as server:
            return scenario.budgets(server, speller)

    return ask


@pytest.fixture(scope="session")
def by_name(request: pytest.FixtureRequest) -> Callable[[str], Record]:
    return request.getfixturevalue
