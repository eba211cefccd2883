"""An engine core that answers with scripted tokens instead of running a model.

It stands in for the client of the engine-core process. Everything above it is the engine's own and runs as
it does for a user: HTTP, rendering, input processing, AsyncLLM, output processing, detokenizer, parsers,
chat and Responses serving. A request carries its script in its extra arguments: a JSON list of steps, each
a list of token ids.
"""

from __future__ import annotations

import asyncio
import dataclasses
import importlib
import json
from types import SimpleNamespace
from typing import Any

from tests.serving.tokens import EOS

SCRIPT = "script"


def install(engine: str, kind: type[ScriptedCore] | None = None) -> None:
    """Put the scripted core, or one of another ``kind``, in place of the engine's client of its core. Called before
    a server is built.
    """
    clients = importlib.import_module(f"{engine}.v1.engine.core_client")
    messages = importlib.import_module(f"{engine}.v1.engine")
    processing = importlib.import_module(f"{engine}.v1.engine.output_processor")
    core = (kind or ScriptedCore)(messages)
    clients.EngineCoreClient.make_async_mp_client = staticmethod(core.start)
    start = processing.OutputProcessor.__init__

    def remember(self: Any, *arguments: Any, **named: Any) -> None:
        start(self, *arguments, **named)
        core.processor = self

    processing.OutputProcessor.__init__ = remember
    describe_models(importlib.import_module(f"{engine}.model_executor.models.registry"))


class ScriptedCore:
    """The part of a core client that AsyncLLM uses for generation; its management calls do nothing."""

    def __init__(self, messages: Any) -> None:
        self.processor: Any = None
        self.engine_ranks_managed = [0]
        self.resources = SimpleNamespace(engine_dead=False)
        self._messages = messages
        self._running: dict[str, asyncio.Task[None]] = {}
        self._outputs: asyncio.Queue[Any] = asyncio.Queue()

    def start(self, *_: Any, **__: Any) -> ScriptedCore:
        """Called in place of what starts the engine core, with its arguments."""
        return self

    async def get_supported_tasks_async(self) -> tuple[str, ...]:
        return ("generate",)

    async def get_output_async(self) -> Any:
        return await self._outputs.get()

    async def add_request_async(self, request: Any) -> None:
        self._running[request.request_id] = asyncio.create_task(self._answer(request))

    async def abort_requests_async(self, request_ids: list[str]) -> None:
        for request_id in request_ids:
            if task := self._running.pop(request_id, None):
                task.cancel()

    def dp_engines_running(self) -> bool:
        return False

    def get_kv_event_sources(self) -> dict[str, Any]:
        return {}

    def shutdown(self, *_: Any, **__: Any) -> None:
        for task in self._running.values():
            task.cancel()

    def __getattr__(self, name: str) -> Any:
        if not name.endswith("_async") and name not in ("get_status", "handle_fault"):
            raise AttributeError(name)

        async def nothing(*_: Any, **__: Any) -> None:
            return None

        return nothing

    async def _answer(self, request: Any) -> None:
        parameters = request.sampling_params
        steps = [*json.loads(parameters.extra_args[SCRIPT]), [EOS]]
        limit, sent = parameters.max_tokens, 0
        for step in steps:
            ids = step[: limit - sent] if limit else step
            sent += len(ids)
            reason = self._messages.FinishReason.LENGTH if sent == limit else None
            if EOS in ids:
                reason = self._messages.FinishReason.STOP
            output = self._messages.EngineCoreOutput(
                request_id=request.request_id, new_token_ids=ids, finish_reason=reason
            )
            self._outputs.put_nowait(self._messages.EngineCoreOutputs(outputs=[output]))
            await self._taken(request.request_id)
            if reason is not None:
                break
        self._running.pop(request.request_id, None)

    async def _taken(self, request_id: str) -> None:
        """Wait until the front end has taken the last step, so that each step becomes one delta of a
        stream.
        """
        for turn in range(1000):
            await asyncio.sleep(0 if turn < 100 else 0.001)
            state = self.processor.request_states.get(request_id)
            waiting = state is not None and state.queue is not None and state.queue.output is not None
            if self._outputs.empty() and not waiting:
                break
        # One more turn for the generator that took it to send its chunk.
        await asyncio.sleep(0)


def describe_models(registry: Any) -> None:
    """Tell the registry about the model instead of letting it load the model's code in a process of its
    own.
    """
    known = {
        "is_text_generation_model": True,
        "attn_type": "decoder",
        "score_type": "bi-encoder",
        "default_pooling_type": "LAST",
        "default_seq_pooling_type": "LAST",
        "default_tok_pooling_type": "ALL",
        "supports_pp": True,
    }

    def describe(self: Any) -> Any:
        values: dict[str, Any] = {}
        for field in dataclasses.fields(registry._ModelInfo):
            kind = str(field.type)
            empty = () if "tuple" in kind else None if "None" in kind else False
            values[field.name] = known.get(field.name, empty)
        return registry._ModelInfo(**values | {"architecture": self.class_name})

    registry._LazyRegisteredModel.inspect_model_cls = describe
