"""The order of pause, update and resume, whatever happens between; the real engine is asked in tests/live_rl."""

from __future__ import annotations

import ast
import asyncio
import logging
import re
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from engine_overlay.rl import Call, inflight, inflight_update
from engine_overlay.verify.releases import pinned

Engine = Callable[..., Any]


class Recorder:
    """What an ``AsyncLLM`` of the oldest release has, writing down what it is asked for."""

    def __init__(self, *, caching: bool = False, slow_pause: float = 0.0) -> None:
        self.seen: list[Any] = []
        self.slow_pause = slow_pause
        self.vllm_config = SimpleNamespace(cache_config=SimpleNamespace(enable_prefix_caching=caching))
        self.free = True

    async def pause_generation(self, *, mode: str, clear_cache: bool) -> None:
        await asyncio.sleep(self.slow_pause)
        self.seen.append(("pause", mode, clear_cache))

    async def resume_generation(self) -> None:
        await asyncio.sleep(0.01)
        self.seen.append("resume")

    async def collective_rpc(self, method: str, timeout: float | None, args: tuple, kwargs: dict) -> list[Any]:
        self.seen.append(("call", method, args, kwargs))
        if method == "broken":
            raise RuntimeError("no such weights")
        if method == "endless":
            await asyncio.sleep(60)
        await asyncio.sleep(0.01)
        return [None]

    async def reset_prefix_cache(self) -> bool:
        self.seen.append("reset")
        return self.free


class Newer(Recorder):
    """With a place for the weight version."""

    async def update_weight_version(self, version: str) -> None:
        self.seen.append(("version", version))


@pytest.fixture(autouse=True)
def forget(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inflight, "_WARNED", set())


def test_pause_update_version_resume_in_this_order() -> None:
    engine = Newer()
    done = asyncio.run(inflight_update(engine, Call("load", ("a",), {"b": 1}), weight_version=7))
    assert engine.seen == [("pause", "keep", False), ("call", "load", ("a",), {"b": 1}), ("version", "7"), "resume"]
    assert (done.results, done.weight_version, done.recorded, done.mode) == ([None], "7", "engine", "keep")
    assert done.paused > 0


def test_an_update_that_raises_is_resumed_and_has_no_version() -> None:
    engine = Newer()
    with pytest.raises(RuntimeError, match="no such weights"):
        asyncio.run(inflight_update(engine, "broken", weight_version=7))
    repair = ("call", "reload_weights", (), {"weights_iterator": []})
    assert engine.seen == [("pause", "keep", False), ("call", "broken", (), {}), repair, "resume"]


def test_a_fallback_is_loaded_before_the_engine_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    engine = Newer()
    with pytest.raises(RuntimeError, match="no such weights"):
        asyncio.run(inflight_update(engine, "broken", fallback=Call("load", ("good",))))
    assert engine.seen[2:] == [
        ("call", "reload_weights", (), {"weights_iterator": []}), ("call", "load", ("good",), {}), "resume"
    ]  # fmt: skip
    assert caplog.messages == []


def test_a_fallback_that_raises_is_told_and_the_first_error_comes_through(caplog: pytest.LogCaptureFixture) -> None:
    engine = Newer()

    def bad(_: Any) -> None:
        raise KeyError("the trainer is gone")

    with pytest.raises(KeyError, match="gone"):
        asyncio.run(inflight_update(engine, bad, fallback="broken"))
    assert engine.seen[-1] == "resume"
    assert len(caplog.messages) == 1 and "broken after a failed update" in caplog.messages[0]


def test_a_pause_that_raises_is_resumed() -> None:
    engine = Recorder()

    async def pause(**_: Any) -> None:
        raise ValueError("wait is not possible here")

    engine.pause_generation = pause
    with pytest.raises(ValueError, match="not possible"):
        asyncio.run(inflight_update(engine, "load", mode="wait"))
    assert engine.seen == ["resume"]


@pytest.mark.parametrize(("engine", "seen"), [(Recorder(slow_pause=0.05), 1), (Recorder(), 2)])
def test_a_cancelled_update_resumes_after_the_pause_took_effect(engine: Recorder, seen: int) -> None:
    async def scenario() -> None:
        task = asyncio.ensure_future(inflight_update(engine, "endless"))
        await asyncio.sleep(0.03)
        task.cancel()
        # And once more while it resumes.
        await asyncio.sleep(0.025)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(scenario())
    assert len(engine.seen) == seen + 1
    assert engine.seen[0][0] == "pause" and engine.seen[-1] == "resume"


def test_updates_of_one_engine_wait_for_each_other() -> None:
    engine = Recorder()

    async def scenario() -> None:
        await asyncio.gather(inflight_update(engine, "one"), inflight_update(engine, "two"))

    asyncio.run(scenario())
    kinds = [entry if isinstance(entry, str) else entry[0] for entry in engine.seen]
    assert kinds == ["pause", "call", "resume"] * 2


def test_one_engine_may_be_updated_from_loop_after_loop() -> None:
    engine = Recorder()
    for _ in range(2):
        asyncio.run(inflight_update(engine, "load"))
    assert engine.seen.count("resume") == 2


@pytest.mark.parametrize("kind", ["plain", "async"])
def test_an_update_may_be_a_function(kind: str) -> None:
    engine = Recorder()

    def plain(given: Any) -> str:
        given.seen.append("mine")
        return "done"

    async def later(given: Any) -> str:
        return plain(given)

    done = asyncio.run(inflight_update(engine, plain if kind == "plain" else later))
    assert engine.seen == [("pause", "keep", False), "mine", "resume"]
    assert done.results == "done"


def test_stale_prefixes_are_told_once_and_every_update_says_so(caplog: pytest.LogCaptureFixture) -> None:
    engine = Newer(caching=True)
    with caplog.at_level(logging.WARNING, "engine_overlay.rl"):
        found = [asyncio.run(inflight_update(engine, "load", weight_version=v)) for v in (1, 2)]
    assert [update.stale_prefixes for update in found] == [True, True]
    assert [update.cache_salt for update in found] == ["1", "2"]
    assert len(caplog.messages) == 1 and "older weights" in caplog.messages[0]


@pytest.mark.parametrize(
    ("caching", "options", "free", "stale", "cleared"),
    [
        (False, {}, True, False, False),
        (True, {"clear_cache": True}, True, False, True),
        (True, {"reset_prefix_cache": True}, True, False, True),
        (True, {"reset_prefix_cache": True}, False, True, False),
    ],
)
def test_what_makes_prefixes_fresh(caching: bool, options: dict, free: bool, stale: bool, cleared: bool) -> None:
    engine = Recorder(caching=caching)
    engine.free = free
    found = asyncio.run(inflight_update(engine, "load", **options))
    assert (found.stale_prefixes, found.cleared) == (stale, cleared)
    assert (found.cache_salt is None) is not stale
    assert engine.seen[0] == ("pause", "keep", options.get("clear_cache", False))


def test_a_release_without_a_place_for_the_version_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    engine = Recorder()
    for version in (1, 2):
        found = asyncio.run(inflight_update(engine, "load", weight_version=version))
        assert (found.recorded, found.weight_version) == ("nowhere", str(version))
    assert [message for message in caplog.messages if "keeps none" in message] == caplog.messages[:1]


@pytest.mark.parametrize(
    ("engine", "update", "options", "said"),
    [
        (Recorder(), "load", {"mode": "freeze"}, "keep, wait, abort"),
        (Recorder(), None, {}, "worker method"),
        (Recorder(), "load", {"fallback": 3}, "fallback is a int"),
        (object(), "load", {}, "has no pause_generation"),
    ],
)
def test_wrong_use_is_one_line_and_touches_nothing(engine: Any, update: Any, options: dict, said: str) -> None:
    with pytest.raises((TypeError, ValueError), match=said) as error:
        asyncio.run(inflight_update(engine, update, **options))
    assert "\n" not in str(error.value)
    assert getattr(engine, "seen", []) == []


RELEASES = [release for release in pinned() if release.sources.is_dir()]


@pytest.mark.skipif(not RELEASES, reason="no engine's sources are in the cache")
@pytest.mark.parametrize("release", RELEASES, ids=lambda release: release.label)
def test_every_release_has_what_is_called(release: Any) -> None:
    methods = _methods(release.sources / release.engine / "v1/engine/async_llm.py", "AsyncLLM")
    assert {"mode", "clear_cache"} <= methods["pause_generation"]
    assert methods["resume_generation"] == {"self"}
    assert {"method", "timeout", "args", "kwargs"} <= methods["collective_rpc"]
    assert "reset_prefix_cache" in methods
    # New releases only: without it the version is recorded nowhere, and one line says so.
    assert methods.get("update_weight_version", {"new_version"}) >= {"new_version"}
    workers = _methods(release.sources / release.engine / "v1/worker/gpu_model_runner.py", "GPUModelRunner")
    assert {"weights_iterator", "weights_path"} <= workers["reload_weights"]
    # What the repair relies on: layers that wait for weights are left alone, and get the old ones when none come.
    reload = (release.sources / release.engine / "model_executor/model_loader/reload/layerwise.py").read_text()
    start = reload.partition("def initialize_layerwise_reload")[2].partition("\ndef ")[0]
    assert "if info.can_load():" in start or "if info.can_process():" in start
    ends = re.findall(r"info.load_numel <= 0:.*?_place_kernel_tensors\(layer, info\)", reload, re.DOTALL)
    assert ends and "\ndef " not in ends[0]
    routers = (release.sources / release.engine / "entrypoints").rglob("*router.py")
    routes = "".join(path.read_text() for path in routers)
    for path in ("/pause", "/resume", "/collective_rpc", "/reset_prefix_cache"):
        assert f'@router.post("{path}")' in routes
    assert ("update_weight_version" in methods) is ('@router.post("/update_weight_version")' in routes)


def _methods(file: Path, name: str) -> dict[str, set[str]]:
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.ClassDef) and node.name == name:
            functions = [m for m in node.body if isinstance(m, (ast.FunctionDef, ast.AsyncFunctionDef))]
            return {m.name: {a.arg for a in (*m.args.args, *m.args.kwonlyargs)} for m in functions}
    raise AssertionError(f"{file} has no class {name}")
