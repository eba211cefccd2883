"""Servers launched with one name for both parsers, over HTTP: the same command on old and new releases."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from engine_overlay.verify import releases
from tests.serving import one, requests
from tests.serving.one import Server
from tests.serving.tokens import spelled, whole

OLD = ("vllm-0.18.1", "vllm-0.20.2", "vllm-0.23.0", "aphrodite_engine-0.21.0")
NEW = ("vllm-0.24.0", "vllm-0.33.0", "aphrodite_engine-0.24.1")
_THOUGHT = "I should check."
_JSON = '[{"name": "get_weather", "parameters": {"city": "Paris", "days": 3}}]'
_MARKUP = "<tool_call>\n<function=get_weather>\n<parameter=city>\nParis\n</parameter>\n</function>\n</tool_call>"
_NAMED = {"type": "function", "function": {"name": "get_weather"}}


@pytest.fixture(scope="module", params=[*OLD, *NEW])
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    release = releases.named(request.param)
    releases.fetch(release)
    folder: Path = tmp_path_factory.mktemp("names")
    with Server(release, folder, overlay=True, parsers=("qwen3_engine", "qwen3_engine")) as running:
        yield running


def test_every_request_is_answered_right(server: Server) -> None:
    wrong = {}
    for name, got in one._ask(server).items():
        if judged := one._judged(name, *got)["wrong"]:
            wrong[name] = judged
    assert wrong == {}


def ask(server: Server, ids: list[int], stream: bool, **fields: Any) -> Any:
    """The answer to a chat whose model says ``ids``, one token a step; the choices when there are several."""
    asked = next(r for r in requests.all_requests() if r.api == "chat" and r.stream is stream)
    body = asked.body(server.release.engine) | fields
    body[f"{server.release.engine}_xargs"] = {"script": json.dumps([[i] for i in ids])}
    url = f"http://127.0.0.1:{server.port}{asked.path}"
    call = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(call, timeout=120) as response:
        return requests.answer(asked, response.read().decode())


def skip_new(server: Server) -> None:
    if server.release.has_parser_engine:
        pytest.skip("the name stands for the stock parsers here")


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("choice", ["required", _NAMED])
@pytest.mark.parametrize("tokens", [whole, spelled])
def test_a_forced_call_is_found_as_markup_and_as_json(server: Server, stream: bool, choice: Any, tokens: Any) -> None:
    skip_new(server)
    finish = "tool_calls" if choice == "required" else "stop"
    for text, arguments in ((_MARKUP, {"city": "Paris"}), (_JSON, {"city": "Paris", "days": 3})):
        if choice is _NAMED and text is _JSON:
            text = json.dumps(arguments)
        seen = ask(server, tokens(f"{_THOUGHT}</think>\n\n{text}"), stream, tool_choice=choice)
        want = {"reasoning": _THOUGHT, "content": "", "calls": [["get_weather", arguments]], "finish_reason": finish}
        assert seen == want


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("choice", ["required", _NAMED])
def test_a_forced_call_that_does_not_come_is_no_call(server: Server, stream: bool, choice: Any) -> None:
    skip_new(server)
    seen = ask(server, spelled(f"{_THOUGHT}</think>\n\nSorry."), stream, tool_choice=choice)
    assert seen == {"reasoning": _THOUGHT, "content": "Sorry.", "calls": [], "finish_reason": "stop"}


@pytest.mark.parametrize("stream", [True, False])
def test_reasoning_is_left_out_when_it_is_not_wanted(server: Server, stream: bool) -> None:
    skip_new(server)
    seen = ask(server, spelled(f"{_THOUGHT}</think>\n\n{_MARKUP}"), stream, include_reasoning=False)
    assert (seen["reasoning"], seen["calls"]) == ("", [["get_weather", {"city": "Paris"}]])
