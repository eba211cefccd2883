"""Change a serving engine's weights without losing its requests: pause, update, resume; resume always.

Works on an ``AsyncLLM`` of either engine and, over HTTP, on a server in development mode. Knows no engine's modules:
what an engine has is asked of the object at hand. vLLM 0.18 to 0.33 and Aphrodite 0.20 to 0.24 all have
``pause_generation(mode=, clear_cache=)``, ``collective_rpc`` and ``resume_generation``; a place for the weight version
came with vLLM 0.27 and Aphrodite 0.23, and into each output with vLLM 0.32 (responses over HTTP: 0.33).
"""

from __future__ import annotations

import asyncio
import logging
import time
import weakref
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

_LOG = logging.getLogger("engine_overlay.rl")

Mode = Literal["keep", "wait", "abort"]
MODES = ("keep", "wait", "abort")


@dataclass(frozen=True, slots=True)
class Call:
    """A method of the workers, run in each of them by ``collective_rpc`` while the engine is paused.

    Over HTTP every argument has to be JSON. ``timeout`` in seconds, None for no limit. On every release
    ``Call("reload_weights", kwargs={"weights_path": DIR})`` loads a checkpoint; ``load_weights`` of the model itself
    fails where layers are packed after loading (all CPU and many quantised ones).
    """

    method: str
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    timeout: float | None = None


# Every release reloads layer by layer: all layers are emptied first, and an error on the way leaves them so, which ends
# the engine at its next step. Reloading nothing puts the old weights back into each layer that got none.
_REPAIR = Call("reload_weights", kwargs={"weights_iterator": []}, timeout=300.0)


@dataclass(frozen=True, slots=True)
class Update:
    """What happened.

    ``results``: what each worker returned, or the callable. ``paused``: seconds without new tokens. ``recorded``: where
    the version went: ``outputs`` (each output's metadata), ``engine`` (one for the whole engine), ``nowhere``.
    ``stale_prefixes``: a new request may reuse a prefix that was computed under older weights; None when unknown.
    ``cache_salt``: give it to new requests to keep them from doing so. ``cleared``: the prefix cache was emptied.
    """

    results: Any
    weight_version: str | None
    recorded: Literal["outputs", "engine", "nowhere"]
    paused: float
    mode: str
    cleared: bool
    stale_prefixes: bool | None
    cache_salt: str | None


class _Door(Protocol):
    """The few things an update needs, of an engine in this process or of a server."""

    name: str

    async def pause(self, mode: str, clear_cache: bool) -> None: ...
    async def resume(self) -> None: ...
    async def call(self, call: Call) -> Any: ...
    async def set_version(self, version: str) -> Literal["outputs", "engine", "nowhere"]: ...
    async def reset_prefix_cache(self) -> bool | None: ...
    async def caches_prefixes(self) -> bool | None: ...


_LOCKS: weakref.WeakKeyDictionary[Any, asyncio.Lock] = weakref.WeakKeyDictionary()
_SERVER_LOCKS: weakref.WeakKeyDictionary[Any, dict[str, asyncio.Lock]] = weakref.WeakKeyDictionary()
_WARNED: set[tuple[str, str]] = set()


async def inflight_update(
    engine: Any,
    update: str | Call | Callable[[Any], Any],
    *,
    mode: Mode = "keep",
    clear_cache: bool = False,
    reset_prefix_cache: bool = False,
    weight_version: str | int | None = None,
    fallback: str | Call | Callable[[Any], Any] | None = None,
    api_key: str | None = None,
    timeout: float = 600.0,
) -> Update:
    """Pause ``engine``, run ``update``, resume. The engine is resumed also when the update raises or is cancelled.

    :param engine: an ``AsyncLLM``, or the address of a server, as in ``"http://host:8000"`` (it needs
        ``VLLM_SERVER_DEV_MODE=1``, Aphrodite ``APHRODITE_SERVER_DEV_MODE=1``).
    :param update: a worker method's name, a :class:`Call`, or a function, plain or async, that gets ``engine``.
    :param mode: ``keep`` freezes the requests in flight and goes on with them afterwards; ``wait`` lets them finish
        first; ``abort`` ends them.
    :param clear_cache: drop all cached keys and values when pausing. In mode ``keep`` running requests are then
        computed again, under the new weights; without it they go on with keys and values of the old ones, as
        V0 did.
    :param reset_prefix_cache: empty the prefix cache after the update. An engine refuses that while requests in flight
        hold blocks (mode ``keep``); then it is left, and :attr:`Update.stale_prefixes` says so.
    :param weight_version: name of the new weights, recorded where the release has a place for it, never after an
        update that raised.
    :param fallback: run, still paused, when the update raised; as ``update``. Give the last good weights.
    :param api_key: of the server; ``timeout``: seconds for each of its answers.
    :raises ValueError: the mode is unknown.
    :raises TypeError: ``engine`` cannot be paused, or ``update`` is nothing that can be run.
    :raises engine_overlay.rl.server.ServerError: the server is not reachable or refuses; one line.

    Anything the update raises comes through, after the layers that it emptied got their old weights back. Layers that
    it did load stay changed, so without a ``fallback`` load a whole set again.
    """
    if mode not in MODES:
        raise ValueError(f'engine-overlay: inflight_update: mode is "{mode}"; use one of {", ".join(MODES)}')
    call = _runnable("update", update)
    rescue = None if fallback is None else _runnable("fallback", fallback)
    door = _door(engine, api_key, timeout)
    version = None if weight_version is None else str(weight_version)
    async with _lock(engine):
        started = time.monotonic()
        try:
            # Inside the try: a pause that fails or is cancelled half way may already have taken effect.
            await _to_end(door.pause(mode, clear_cache))
            try:
                results = await _run(door, call, engine)
            except Exception:
                await _repair(door, rescue, engine)
                raise
            recorded = await door.set_version(version) if version is not None else "nowhere"
            cleared = clear_cache
            if reset_prefix_cache and not clear_cache:
                cleared = bool(await door.reset_prefix_cache())
        finally:
            await _to_end(door.resume())
        paused = time.monotonic() - started
    if version is not None and recorded == "nowhere":
        _once(
            door.name, "version",
            "inflight_update: weight version: this release keeps none; use the version in the returned Update, "
            "or vllm 0.27 / aphrodite-engine 0.23 and later",
        )  # fmt: skip
    # Blocks that were filled before the update can be hit unless they were dropped, or were never kept.
    stale = False if cleared else await door.caches_prefixes()
    if stale is not False:
        _once(
            door.name, "stale",
            "inflight_update: prefix cache: new requests can reuse prefixes computed under older weights; pass "
            "clear_cache=True, or give new requests Update.cache_salt, or serve without prefix caching",
        )  # fmt: skip
    salt = version if version is not None else f"{time.time_ns():x}"
    return Update(results, version, recorded, paused, mode, cleared, stale, salt if stale is not False else None)


def _runnable(name: str, given: Any) -> Call | Callable[[Any], Any]:
    if isinstance(given, str):
        return Call(given)
    if isinstance(given, Call) or callable(given):
        return given
    raise TypeError(
        f"engine-overlay: inflight_update: {name} is a {type(given).__name__}; "
        "give a worker method's name, a Call, or a function"
    )


async def _repair(door: _Door, rescue: Call | Callable[[Any], Any] | None, engine: Any) -> None:
    """After an update that raised. Errors in here are told; the update's own is the one that goes to the caller."""
    for step in (_REPAIR, rescue):
        try:
            if step is not None:
                await _run(door, step, engine)
        except Exception as error:
            name = step.method if isinstance(step, Call) else "fallback"
            said = " ".join(str(error).split())[:200]
            _LOG.warning("inflight_update: %s after a failed update raised (%s); load all weights again", name, said)


async def _run(door: _Door, call: Call | Callable[[Any], Any], engine: Any) -> Any:
    if isinstance(call, Call):
        return await door.call(call)
    result = call(engine)
    return await result if isinstance(result, Awaitable) else result


async def _to_end(step: Awaitable[None]) -> None:
    """Let a step end before a cancellation goes on: a resume must not overtake its pause, nor be left out."""
    task = asyncio.ensure_future(step)
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        await task
        raise


def _door(engine: Any, api_key: str | None, timeout: float) -> _Door:
    if isinstance(engine, str):
        from engine_overlay.rl.server import Server

        return _ServerDoor(Server(engine, api_key=api_key, timeout=timeout))
    wanted = ("pause_generation", "resume_generation", "collective_rpc")
    missing = [name for name in wanted if not callable(getattr(engine, name, None))]
    if missing:
        raise TypeError(
            f"engine-overlay: inflight_update: {type(engine).__name__} has no {missing[0]}; give an AsyncLLM or a "
            "server's address (the offline LLM has nothing in flight between its calls: use its collective_rpc)"
        )
    return _EngineDoor(engine)


def _lock(engine: Any) -> asyncio.Lock:
    """One update of an engine at a time; two would resume each other."""
    if isinstance(engine, str):
        # A lock belongs to a loop, and a trainer may run one loop an update.
        locks = _SERVER_LOCKS.setdefault(asyncio.get_running_loop(), {})
        return locks.setdefault(engine.rstrip("/"), asyncio.Lock())
    return _LOCKS.setdefault(engine, asyncio.Lock())


def _once(name: str, kind: str, line: str) -> None:
    if (name, kind) not in _WARNED:
        _WARNED.add((name, kind))
        _LOG.warning(line)


class _EngineDoor:
    def __init__(self, engine: Any) -> None:
        self.engine = engine
        self.name = f"{type(engine).__name__} {id(engine)}"

    async def pause(self, mode: str, clear_cache: bool) -> None:
        await self.engine.pause_generation(mode=mode, clear_cache=clear_cache)

    async def resume(self) -> None:
        await self.engine.resume_generation()

    async def call(self, call: Call) -> Any:
        return await self.engine.collective_rpc(
            call.method, timeout=call.timeout, args=tuple(call.args), kwargs=dict(call.kwargs)
        )

    async def set_version(self, version: str) -> Literal["outputs", "engine", "nowhere"]:
        setter = getattr(self.engine, "update_weight_version", None)
        if setter is None:
            return "nowhere"
        await setter(version)
        states = getattr(self.engine, "output_processor", None)
        # Whether outputs carry spans is seen at the place that would write them.
        return "outputs" if hasattr(_request_state(states), "track_weight_version") else "engine"

    async def reset_prefix_cache(self) -> bool | None:
        return await self.engine.reset_prefix_cache()

    async def caches_prefixes(self) -> bool | None:
        for name in ("vllm_config", "aphrodite_config"):
            cache = getattr(getattr(self.engine, name, None), "cache_config", None)
            if cache is not None:
                return bool(getattr(cache, "enable_prefix_caching", True))
        return None


def _request_state(processor: Any) -> Any:
    """The class of an output processor's request states, found in the module that defines the processor."""
    import sys

    module = sys.modules.get(type(processor).__module__)
    return getattr(module, "RequestState", None)


class _ServerDoor:
    def __init__(self, server: Any) -> None:
        self.server = server
        self.name = server.url

    async def pause(self, mode: str, clear_cache: bool) -> None:
        query = {"mode": mode, "clear_cache": str(clear_cache).lower()}
        await asyncio.to_thread(self.server.control, "/pause", query=query)

    async def resume(self) -> None:
        await asyncio.to_thread(self.server.resume)

    async def call(self, call: Call) -> Any:
        body = {"method": call.method, "args": list(call.args), "kwargs": dict(call.kwargs), "timeout": call.timeout}
        answer = await asyncio.to_thread(self.server.control, "/collective_rpc", body=body)
        return answer.get("results") if isinstance(answer, dict) else answer

    async def set_version(self, version: str) -> Literal["outputs", "engine", "nowhere"]:
        body = {"new_version": version}
        found = await asyncio.to_thread(self.server.control, "/update_weight_version", body=body, optional=True)
        if found is None:
            return "nowhere"
        return "outputs" if await asyncio.to_thread(self.server.responses_carry_versions) else "engine"

    async def reset_prefix_cache(self) -> bool | None:
        # The server answers 200 also when the engine refused, so this never counts as done.
        await asyncio.to_thread(self.server.control, "/reset_prefix_cache")
        return None

    async def caches_prefixes(self) -> bool | None:
        return await asyncio.to_thread(self.server.caches_prefixes)
