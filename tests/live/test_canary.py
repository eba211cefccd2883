"""``engine-overlay canary`` against the released engine: every planted fault is found, and none in healthy answers."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from engine_overlay.canary.runner import Run
from tests.canary import healthy, planted
from tests.canary.asked import ALL, ask, kinds, told
from tests.live import environment
from tests.live.server import Server, serve
from tests.proxy import processes

PROCESSOR = Path(healthy.__file__).with_name("prompted_logits.py")
PAIRS = ("qwen3+hermes", "+")

Ask = Callable[..., Run]


def _serving(mode: str, model: Path, folder: Path) -> Iterator[tuple[Server, Ask]]:
    answers = folder / "answers.json"
    answers.write_text(json.dumps(healthy.rules()))

    def of(rules: healthy.Rules, checks: list[str], pair: str = "", url: str = "", **more: int) -> Run:
        answers.write_text(json.dumps(rules))
        return ask(url or f"{server.url}/{pair}".rstrip("/"), checks, **more)[1]

    variables = {"ENGINE_OVERLAY": mode, "CANARY_ANSWERS": str(answers)}
    python = environment.prepare(overlay=True)
    with serve(python, model, variables=variables, pairs=PAIRS, processor=PROCESSOR) as server:
        yield server, of


@pytest.fixture(scope="module")
def canary_on(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, Ask]]:
    yield from _serving("on", model, tmp_path_factory.mktemp("canary"))


@pytest.fixture(scope="module")
def canary_off(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, Ask]]:
    yield from _serving("off", model, tmp_path_factory.mktemp("canary"))


def test_no_false_alarm_in_five_hundred_healthy_requests(canary_on: tuple[Server, Ask]) -> None:
    taken = canary_on[1](healthy.rules(), ALL, requests=9, max_tokens=512)
    assert told(taken) == []
    assert Counter(one.unjudged for one in taken.asked) == {"": len(taken.asked)}
    assert len(taken.asked) >= 500
    assert set(taken.wall) == {1, 8, 16, 32}
    # They are answers worth judging: thoughts in all of them, calls, and quoted tags.
    assert all(one.answer.reasoning.strip() for one in taken.asked)
    assert sum(bool(one.answer.calls) for one in taken.asked) >= 200
    assert sum("think>" in one.answer.content for one in taken.asked) >= 20


def test_no_false_alarm_through_the_proxy(canary_on: tuple[Server, Ask]) -> None:
    server, of = canary_on
    with processes.proxy(server.url) as proxy:
        taken = of(healthy.rules(), ALL, url=proxy.url, max_tokens=512)
    assert told(taken) == []
    assert taken.judged == len(taken.asked) >= 100


def _is_found(of: Ask, fault: planted.Planted) -> None:
    taken = of(fault.rules, fault.checks.split(","), fault.pair)
    # In the answers that it was planted in, and not just somewhere.
    words = next(iter(fault.says), "")
    there = {found.kind for one in taken.asked if words in one.question.text for found in one.found}
    assert fault.kinds <= there, told(taken)


@pytest.mark.every
@pytest.mark.parametrize("fault", planted.ENGINE, ids=lambda fault: fault.name)
def test_off_what_the_engine_does_is_found(canary_off: tuple[Server, Ask], fault: planted.Planted) -> None:
    _is_found(canary_off[1], fault)


@pytest.mark.parametrize("fault", planted.ENGINE, ids=lambda fault: fault.name)
def test_on_the_overlay_has_mended_what_the_engine_does(
    canary_on: tuple[Server, Ask], fault: planted.Planted
) -> None:
    assert told(canary_on[1](fault.rules, fault.checks.split(","), fault.pair)) == []


@pytest.mark.parametrize("fault", planted.MODEL, ids=lambda fault: fault.name)
def test_what_the_model_does_is_found_with_the_overlay_too(
    canary_on: tuple[Server, Ask], fault: planted.Planted
) -> None:
    _is_found(canary_on[1], fault)


@pytest.mark.every
def test_what_the_stock_engine_does_to_healthy_answers_is_all_of_known_kinds(canary_off: tuple[Server, Ask]) -> None:
    taken = canary_off[1](healthy.rules(), ["text", "loops", "choice", "parallel"], max_tokens=512)
    assert told(taken) == []
    rest = canary_off[1](healthy.rules(), ["quotes", "stop", "types", "budget"], max_tokens=512)
    assert kinds(rest) <= {"cut at a quoted tag", "nothing delivered", "tag", "wrong type"}, told(rest)
