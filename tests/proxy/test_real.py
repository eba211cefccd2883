"""The filter on real bytes: in a release's own API server as ``--middleware``, and as a proxy before another one.

The servers run their own HTTP, serving, detokenizer and parsers on scripted tokens; nothing of them is patched.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.proxy import processes, real
from tests.proxy.real import request
from tests.proxy.streams import DONE, content, finish, objects
from tests.serving import requests
from tests.serving.tokens import spelled, whole

pytestmark = pytest.mark.engine
CHAT, RESPONSES = "/v1/chat/completions", "/v1/responses"
WAYS = ("middleware in vllm-0.33.0", "proxy before vllm-0.18.0")

# What the model says behind its reasoning, and what a client should be shown of it.
STRAY = {
    "second end": (spelled("</think>\n\nHello."), "\n\nHello."),
    "end at the end": (whole("\n\nHello.") + spelled("</think>"), "\n\nHello."),
    "opener at the end": (whole("\n\nHello.\n") + spelled("<tool_call>"), "\n\nHello.\n"),
    "closer at the end": (whole("\n\nHello.\n</tool_call>"), "\n\nHello.\n"),
    "mention": (whole("\n\nWrite `") + spelled("</think>") + whole("` to end."), "\n\nWrite `</think>` to end."),
}


@dataclass(frozen=True)
class Way:
    """Addresses with the filter, and without it where that can be asked; and the log of the server."""

    filtered: str
    stock: str | None
    log: Path


@pytest.fixture(scope="module", params=WAYS)
def way(request: pytest.FixtureRequest) -> Iterator[Way]:
    kind, _, label = request.param.rpartition(" ")
    if kind.startswith("middleware"):
        with real.serve(label, *real.MIDDLEWARE) as (inside, log):
            yield Way(inside, None, log)
    else:
        with real.serve(label) as (stock, log), processes.proxy(stock) as before:
            yield Way(before.url, stock, log)


def post(url: str, path: str, ids: list[int], stream: bool, **more: Any) -> httpx.Response:
    body = request("vllm", [[i] for i in ids], path, stream, **more)
    return httpx.post(url + path, json=body, timeout=60, trust_env=False)


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "full"])
@pytest.mark.parametrize("name", STRAY)
def test_chat(way: Way, name: str, stream: bool) -> None:
    said, shown = STRAY[name]
    got = post(way.filtered, CHAT, whole("I see.</think>") + said, stream)
    if stream:
        assert content(got.content) == shown
        return
    text = got.json()["choices"][0]["message"]["content"]
    # vLLM 0.33 itself drops a quoted tag from a full answer.
    assert text in ((shown, shown.replace("</think>", "")) if name == "mention" and way.stock is None else (shown,))


def test_stop_strings_cut_tags_and_the_rest_goes(way: Way) -> None:
    got = post(way.filtered, CHAT, whole("I see.</think>\n\nHello there."), True, stop=["HALT!"])
    assert content(got.content) == "\n\nHello there."
    if way.stock:
        stock = post(way.stock, CHAT, whole("I see.</think>\n\nHello there."), True, stop=["HALT!"])
        assert content(stock.content) == "ink>\n\nHello there."


def test_responses(way: Way) -> None:
    for name, (said, shown) in STRAY.items():
        got = post(way.filtered, RESPONSES, whole("I see.</think>") + said, True)
        found = objects(got.content)
        assert "".join(o["delta"] for o in found if o["type"] == "response.output_text.delta") == shown
        last = [item for item in found[-1]["response"]["output"] if item["type"] == "message"]
        assert last[0]["content"][0]["text"] == shown
        if name == "mention":
            continue
        whole_answer = post(way.filtered, RESPONSES, whole("I see.</think>") + said, False).json()["output"]
        assert [p["text"] for i in whole_answer if i["type"] == "message" for p in i["content"]] == [shown]


def test_completions(way: Way) -> None:
    for stream in (True, False):
        got = post(way.filtered, "/v1/completions", spelled("hink>\n\nHi.</think>"), stream)
        text = content(got.content, kind="/v1/completions") if stream else got.json()["choices"][0]["text"]
        assert text == "\n\nHi."


def test_a_loop_is_ended_and_aborted_in_the_engine(way: Way) -> None:
    ids = whole("I see.</think>") + spelled("<think>\n\n</think>\n\n") * 45
    before = aborted(way.log)
    got = post(way.filtered, CHAT, ids, True, max_tokens=2000)
    assert got.content.endswith(DONE) and finish(got.content) == "length" and content(got.content).strip() == ""
    # Four seconds are less than a server that is not cancelled gets before its next event is refused.
    end = time.monotonic() + 4
    while aborted(way.log) == before and time.monotonic() < end:
        time.sleep(0.1)
    assert aborted(way.log) == before + 1


def aborted(log: Path) -> int:
    """How many requests the engine says that it has aborted."""
    return len(re.findall(r"Request \S+ aborted\.", log.read_text(errors="replace")))


def test_healthy_answers_keep_every_byte(way: Way) -> None:
    asked = [r for r in requests.all_requests() if r.form == "whole"]
    assert len(asked) == 10
    for one in asked:
        got, *stock = (
            httpx.post(url + one.path, json=one.body("vllm"), timeout=60, trust_env=False).text
            for url in (way.filtered, way.stock)
            if url
        )
        if stock:
            assert requests.comparable(got) == requests.comparable(stock[0]), one.name
        else:
            assert requests.wrong(one, requests.answer(one, got)) == {}, one.name
