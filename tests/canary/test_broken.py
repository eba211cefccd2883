"""Against a real HTTP server that breaks its answers: each way is found, and what is no fault is none."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from engine_overlay.canary.asking import CannotAsk
from tests.canary import broken
from tests.canary.asked import ALL, ask, kinds, told

SLOW = {"hangs", "hangs-in-stream"}


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with broken.served() as address:
        yield address


@pytest.mark.parametrize("way", broken.WAYS)
def test_every_way_to_break_an_answer_is_found(url: str, way: str) -> None:
    checks = ["text"] if way in SLOW else ALL
    _, taken = ask(f"{url}/{way}", checks, levels=(4,), seconds=0.5 if way in SLOW else 10.0)
    assert kinds(taken) == broken.WAYS[way], told(taken)
    for one in taken.asked:
        for found in one.found:
            # Evidence is a piece of the answer, its events, or there was none.
            assert found.piece or found.events or found.kind in ("silence", "broke off"), found


@pytest.mark.parametrize("way", broken.GENTLE)
def test_what_a_server_may_do_is_no_finding(url: str, way: str) -> None:
    # Where tool_choice requires a call, a server that makes none breaks its word.
    checks = [check for check in ALL if (way, check) != ("declines", "choice")]
    _, taken = ask(f"{url}/{way}", checks, levels=(4,))
    assert told(taken) == []
    judged = {one.question.check for one in taken.asked if not one.unjudged}
    everything = set(ALL)
    expected = {
        "busy": set(),
        "no-tools": everything - {"types", "choice"},
        "no-thoughts": everything - {"budget"},
        "refuses-budget": everything - {"budget"},
        "declines": everything - {"types", "choice", "budget"},
    }.get(way, everything)
    assert judged == expected


def test_a_server_that_ends_in_the_middle_of_a_run_is_not_asked_for_ever(url: str) -> None:
    _, taken = ask(f"{url}/hangs", ["text", "loops", "quotes"], requests=5, seconds=0.3)
    assert "no answer at all" in taken.stopped
    assert len(taken.asked) < 20


@pytest.mark.parametrize(
    ("folder", "said"),
    [
        ("key", "wants a key"),
        ("no-list", "no list of models"),
        ("never-well", "no answer"),
    ],
)
def test_a_server_that_cannot_be_asked_is_told_in_a_line(url: str, folder: str, said: str) -> None:
    with pytest.raises(CannotAsk, match=said) as refused:
        ask(f"{url}/{folder}", ["text"], seconds=0.5)
    assert refused.value.args[1]


def test_no_server() -> None:
    with pytest.raises(CannotAsk, match="no server answers"):
        ask("http://127.0.0.1:9", ["text"])
