"""The released engine's own server in development mode: updates over HTTP, and parity against it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from engine_overlay.rl import Call, inflight_update
from engine_overlay.rl.server import Server, ServerError
from tests.live.server import MODEL, serve
from tests.live_rl.scenario import IN_FLIGHT, PROMPT, TOKENS


@pytest.fixture(scope="session")
def url(plain: Path) -> Iterator[str]:
    import sys

    variables = {"VLLM_SERVER_DEV_MODE": "1", "ENGINE_OVERLAY": "off"}
    arguments = ("--dtype", "float32", "--max-model-len", "1024")
    with serve(Path(sys.executable), plain, *arguments, variables=variables) as server:
        yield server.url


async def ask(client: httpx.AsyncClient, i: int, **more: Any) -> dict[str, Any]:
    body = {"model": MODEL, "prompt": [*PROMPT, i], "max_tokens": TOKENS, "temperature": 0, "ignore_eos": True, **more}
    answer = await client.post("/v1/completions", json=body | {"return_token_ids": True})
    answer.raise_for_status()
    return answer.json()["choices"][0]


def load(folder: Path) -> Call:
    return Call("reload_weights", kwargs={"weights_path": str(folder)})


async def paused(client: httpx.AsyncClient) -> bool:
    return (await client.get("/is_paused")).json()["is_paused"]


def test_requests_survive_an_update_and_outputs_change(url: str, moved: Path) -> None:
    async def scenario() -> tuple[list, dict, dict, Any, str, bool]:
        async with httpx.AsyncClient(base_url=url, timeout=300) as client:
            before = await ask(client, 3)
            task = asyncio.ensure_future(asyncio.wait_for(_all(client), 300))
            await asyncio.sleep(0.7)
            assert not task.done()
            update = await inflight_update(url, load(moved), weight_version="moved", clear_cache=True)
            answers = await task
            version = (await client.get("/weight_info")).json()["weight_version"]
            return answers, before, await ask(client, 3), update, version, await paused(client)

    answers, before, after, update, version, still = asyncio.run(scenario())
    assert [(len(a["token_ids"]), a["finish_reason"]) for a in answers] == [(TOKENS, "length")] * IN_FLIGHT
    assert before["token_ids"] != after["token_ids"]
    # This release keeps one version for the whole server; responses tell theirs from 0.33 on.
    assert (version, update.recorded, update.cleared, still) == ("moved", "engine", True, False)


async def _all(client: httpx.AsyncClient) -> list[dict[str, Any]]:
    return await asyncio.gather(*(ask(client, i) for i in range(IN_FLIGHT)))


def test_an_update_that_raises_leaves_the_server_serving(url: str) -> None:
    async def scenario() -> tuple[list[str], bool, dict]:
        async with httpx.AsyncClient(base_url=url, timeout=300) as client:
            said = []
            for bad in (load(Path("/no/such/folder")), Call("no_such_method")):
                with pytest.raises(ServerError) as error:
                    await inflight_update(url, bad, weight_version="bad")
                said.append(str(error.value))
            return said, await paused(client), await ask(client, 5)

    said, still, answer = asyncio.run(scenario())
    assert all("\n" not in line and "/collective_rpc answered" in line for line in said)
    assert still is False and len(answer["token_ids"]) == TOKENS


def test_a_server_says_whether_it_caches_prefixes(url: str) -> None:
    assert Server(url).caches_prefixes() is True


def test_parity_of_a_running_server(url: str, plain: Path, run: Callable, tmp_path: Path) -> None:
    asyncio.run(inflight_update(url, load(plain), weight_version="plain", clear_cache=True))
    out = tmp_path / "server.html"
    command = ("--model", str(plain), "--url", url, "--out", str(out), "--limit", "4", "--max-tokens", "32")
    done = run("engine_overlay.cli", "parity", *command, ENGINE_OVERLAY="off")
    assert done.returncode == 1, done.stderr[-2000:]
    report = json.loads(out.with_suffix(".json").read_text())
    first = report["findings"][0]
    assert (first["layer"], first["status"]) == ("semantic", "cause") and "are raw" in first["said"]
    readings = report["runs"][0]["readings"]
    assert readings["raw"]["mean_abs_log_ratio"] <= 1e-5 < 0.3 < readings["processed"]["mean_abs_log_ratio"]
    statuses = {entry["name"]: entry["status"] for entry in report["findings"]}
    assert (statuses["caching"], statuses["head"]) == ("no effect", "not measured")
