"""Every release's own API server over HTTP, overlay off and on; runs of :mod:`tests.serving.run`, kept in
the cache.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from engine_overlay.verify import releases
from engine_overlay.verify.releases import Release
from tests.matrix import spread
from tests.matrix.store import Result
from tests.serving import requests, run, tokens

Results = dict[str, Result]

ALL = pytest.mark.parametrize("release", releases.pinned(), ids=lambda release: release.label)
WITH_PARSER_ENGINE = pytest.mark.parametrize(
    "release", [r for r in releases.pinned() if r.has_parser_engine], ids=lambda release: release.label
)
WITHOUT = pytest.mark.parametrize(
    "release", [r for r in releases.pinned() if not r.has_parser_engine], ids=lambda release: release.label
)

# The only module that an engine imports of a plug-in that is installed and switched off: the entry point's
# own.
PLUGIN_MODULES = {"_engine_overlay_startup"}


@pytest.fixture(scope="module")
def results() -> Results:
    return run.results(spread.chosen(), print)


def of(result: Result, side: str, form: str, api: str = "") -> dict[str, Result]:
    """The answers on one side to the requests of one form."""
    names = [r.name for r in requests.all_requests() if r.form == form and r.api.startswith(api)]
    return {name: result[side]["requests"][name] for name in names}


def streamed_chat(result: Result, side: str) -> dict[str, Result]:
    return {name: a for name, a in of(result, side, "spelled", "chat").items() if "stream" in name}


@ALL
def test_overlay_is_in_the_server(release: Release, results: Results) -> None:
    on = results[release.label]["on"]
    assert on["way"] == "startup"
    assert on["problems"] == []
    assert "applied" in {state for _, state in on["patches"].values()}
    assert {verdict for verdict, _ in on["patches"].values()} <= {"apply", "native", "disabled"}


@ALL
def test_overlay_is_not_in_the_server_when_off(release: Release, results: Results) -> None:
    off = results[release.label]["off"]
    assert (off["way"], off["modules"]["finders"]) == (None, [])
    assert set(off["modules"]["modules"]) <= PLUGIN_MODULES


@WITH_PARSER_ENGINE
def test_whole_markers_are_answered_byte_for_byte_as_without(release: Release, results: Results) -> None:
    assert run.changed_whole(results[release.label]) == []


@WITHOUT
def test_whole_markers_are_answered_as_without(release: Release, results: Results) -> None:
    # A delta of several tokens with the marker in it is cut there for the parsers of these releases, which may move
    # white space; what the client puts together is the same.
    off, on = (results[release.label][side]["requests"] for side in ("off", "on"))
    whole = [r.name for r in requests.all_requests() if r.form == "whole" and not off[r.name]["wrong"]]
    assert whole
    assert {name: on[name]["answer"] for name in whole} == {name: off[name]["answer"] for name in whole}


@ALL
def test_nothing_turns_wrong(release: Release, results: Results) -> None:
    assert run.worse(results[release.label]) == []


@ALL
def test_stock_server_leaks_spelled_markers(release: Release, results: Results) -> None:
    leaks = {
        name: answer["answer"] for name, answer in streamed_chat(results[release.label], "off").items()
    }
    assert leaks and all("</think>" in answer["reasoning"] for answer in leaks.values()), leaks


@ALL
def test_spelled_markers_are_right(release: Release, results: Results) -> None:
    assert {
        name: a["wrong"] for name, a in of(results[release.label], "on", "spelled").items() if a["wrong"]
    } == {}


@WITHOUT
def test_mentions_and_whole_markers_are_right_by_the_own_parser(release: Release, results: Results) -> None:
    answers = of(results[release.label], "on", "mention") | of(results[release.label], "on", "whole")
    assert answers and {name: a["wrong"] for name, a in answers.items() if a["wrong"]} == {}


def test_tokens_of_the_client_are_those_of_the_model(tmp_path: Path) -> None:
    tokens.write_model(tmp_path)
    data = json.loads((tmp_path / "tokenizer.json").read_text(encoding="utf-8"))
    ids = {entry["content"]: entry["id"] for entry in data["added_tokens"]}
    assert tokens.whole("é</think>") == [*"é".encode(), ids["</think>"]]
    assert tokens.spelled("</think>") == list(b"</think>")
    assert sorted(data["model"]["vocab"].values()) == list(range(256))
