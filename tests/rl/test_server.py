"""The HTTP client against a small real server: what it sends, and what it says when something is not as it should."""

from __future__ import annotations

import asyncio
import json
import math
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from engine_overlay.rl import Call, inflight, inflight_update, server
from engine_overlay.rl.server import Server, ServerError


class Site:
    """Answers by path: (status, JSON) or a list of them, one a request; keeps what it was asked."""

    def __init__(self) -> None:
        self.answers: dict[str, tuple[int, object] | list[tuple[int, object]]] = {}
        self.seen: list[tuple[str, object]] = []
        site = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                length = int(self.headers.get("Content-Length") or 0)
                body = self.rfile.read(length)
                site.seen.append((self.path, json.loads(body) if body else None))
                site.key = self.headers.get("Authorization")
                answer = site.answers.get(self.path.partition("?")[0], (404, {"detail": "Not Found"}))
                status, value = answer.pop(0) if isinstance(answer, list) else answer
                data = json.dumps(value).encode() if value is not None else b""
                self.send_response(status)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            do_POST = do_GET

            def log_message(self, *_: object) -> None:
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.http.server_port}"

    def paths(self) -> list[str]:
        return [path for path, _ in self.seen]


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    monkeypatch.setattr(inflight, "_WARNED", set())
    monkeypatch.setattr(server, "_CACHING", {})
    found = Site()
    thread = threading.Thread(target=found.http.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    yield found
    found.http.shutdown()
    found.http.server_close()


def ready(site: Site, **more: object) -> None:
    config = {"vllm_config": {"cache_config": {"enable_prefix_caching": True}}}
    site.answers = {
        "/pause": (200, {"status": "paused"}), "/resume": (200, {"status": "resumed"}),
        "/collective_rpc": (200, {"results": [None]}), "/update_weight_version": (200, {"success": True}),
        "/openapi.json": (200, {}), "/server_info": (200, config), **more,
    }  # fmt: skip


def test_an_update_over_http(site: Site) -> None:
    ready(site)
    call = Call("reload_weights", kwargs={"weights_path": "/w"})
    found = asyncio.run(inflight_update(site.url + "/v1", call, weight_version="w2", api_key="secret"))
    assert site.seen[:4] == [
        ("/pause?mode=keep&clear_cache=false", {}),
        ("/collective_rpc", {"method": "reload_weights", "args": [], "kwargs": call.kwargs, "timeout": None}),
        ("/update_weight_version", {"new_version": "w2"}),
        ("/openapi.json", None),
    ]
    assert site.seen[4] == ("/resume", {}) and site.key == "Bearer secret"
    assert (found.results, found.recorded, found.stale_prefixes, found.cache_salt) == ([None], "engine", True, "w2")


@pytest.mark.parametrize(
    ("config", "stale"),
    [
        ({"vllm_config": "cache_config=CacheConfig(enable_prefix_caching=False)"}, False),
        ({"vllm_config": {"cache_config": {"enable_prefix_caching": True}}}, True),
        ({}, None),
    ],
)
def test_prefix_caching_is_read_from_either_form(site: Site, config: dict, stale: bool | None) -> None:
    ready(site, **{"/server_info": (200, config)})
    assert asyncio.run(inflight_update(site.url, "load")).stale_prefixes is stale


def test_a_server_whose_responses_tell_the_version(site: Site) -> None:
    ready(site, **{"/openapi.json": (200, {"properties": {"weight_versions": {}}})})
    assert asyncio.run(inflight_update(site.url, "load", weight_version=1)).recorded == "outputs"


def test_an_older_server_has_no_place_for_the_version(site: Site) -> None:
    ready(site, **{"/update_weight_version": (404, {})})
    assert asyncio.run(inflight_update(site.url, "load", weight_version=1)).recorded == "nowhere"


def test_a_failed_update_resumes_and_says_what_the_server_said(site: Site) -> None:
    ready(site, **{"/collective_rpc": (500, {"error": "no such weights"})})
    with pytest.raises(ServerError, match="no such weights") as error:
        asyncio.run(inflight_update(site.url, "load", weight_version=1))
    assert "\n" not in str(error.value)
    # The second call puts the old weights back.
    calls = ["/collective_rpc"] * 2
    assert site.paths() == ["/pause?mode=keep&clear_cache=false", *calls, "/resume"]
    assert site.seen[2][1]["kwargs"] == {"weights_iterator": []}


def test_resume_is_tried_again(site: Site) -> None:
    ready(site, **{"/resume": [(500, {}), (500, {}), (200, {})]})
    asyncio.run(inflight_update(site.url, "load"))
    assert site.paths().count("/resume") == 3


def test_a_server_without_development_mode_is_told_how(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "_RESUME_TRIES", 1)
    with pytest.raises(ServerError, match="VLLM_SERVER_DEV_MODE=1"):
        asyncio.run(inflight_update(site.url, "load"))


@pytest.mark.parametrize(("url", "said"), [("http://127.0.0.1:9", "not reachable"), ("nowhere", "is no address")])
def test_no_server_is_one_line(url: str, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "_RESUME_TRIES", 1)
    with pytest.raises(ServerError, match=said) as error:
        asyncio.run(inflight_update(url, "load"))
    assert "\n" not in str(error.value)


def test_rollouts_carry_ids_and_minus_infinity(site: Site) -> None:
    choice = {"token_ids": [1, 2], "logprobs": {"token_logprobs": [-0.5, -9999.0]}, "text": "ab"}
    models = {"data": [{"id": "m"}]}
    site.answers = {"/v1/completions": (200, {"choices": [choice, choice]}), "/v1/models": (200, models)}
    there = Server(site.url)
    assert there.model() == "m"
    found = there.complete("m", [[7], [8]], n=2)
    assert [sample["prompt"] for sample in found] == [0, 0, 1, 1]
    assert found[0]["logprobs"] == [-0.5, -math.inf]
    assert all(body["return_weight_versions"] for path, body in site.seen if path == "/v1/completions")
    assert {body["prompt"][0] for path, body in site.seen if path == "/v1/completions"} == {7, 8}


def test_a_server_that_drops_the_ids_is_named(site: Site) -> None:
    site.answers = {"/v1/completions": (200, {"choices": [{"logprobs": {"token_logprobs": [-0.5]}}]})}
    with pytest.raises(ServerError, match="no token ids"):
        Server(site.url).complete("m", [[7]])
