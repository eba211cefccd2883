"""The engine's real core (scheduler, KV cache manager, structured output, stop checks) in the API server's process.

Only the executor is scripted: it wants the tokens of a request's script, one a step. The mask of the engine's grammar
and the engine's own thinking budget decide whether it gets them. Where the mask forbids the wanted token it goes on
with the first of the request's ``fallbacks`` that may begin there; a token that the budget forces comes in between.
"""

from __future__ import annotations

import asyncio
import dataclasses
import importlib
import inspect
import json
import os
import traceback
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from tests.serving import scripted_core
from tests.serving.tokens import EOS, VOCABULARY

FALLBACKS = "fallbacks"


def install(engine: str, kind: type[DeepCore] | None = None) -> None:
    """Put the deep core, or one of another ``kind``, in place of the client of the engine's core, before a server is
    built.
    """
    scripted_core.install(engine, type("Core", (kind or DeepCore,), {"engine": engine}))


class DeepCore(scripted_core.ScriptedCore):
    """A client of an engine core that runs in this process, step by step between the turns of the server."""

    engine: str

    def start(self, *arguments: Any, **named: Any) -> DeepCore:
        config = named.get(f"{self.engine}_config") or arguments[0]
        config.scheduler_config.async_scheduling = False
        clients = importlib.import_module(f"{self.engine}.v1.engine.core_client")
        self._client = clients.InprocClient(config, self.executor(), False)
        self._awake = asyncio.Event()
        self._stepping: asyncio.Task[None] | None = None
        return self

    def executor(self) -> type:
        return executor_class(self.engine)

    async def add_request_async(self, request: Any) -> None:
        if self._stepping is None:
            self._stepping = asyncio.create_task(self._step())
        self._client.add_request(request)
        self._awake.set()

    async def abort_requests_async(self, request_ids: list[str]) -> None:
        self._client.abort_requests(list(request_ids))

    async def _step(self) -> None:
        while True:
            if not self._client.engine_core.scheduler.has_requests():
                self._awake.clear()
                await self._awake.wait()
            try:
                found = self._client.get_output()
            except Exception:
                # As when the process of an engine core dies: the server must not wait for it.
                traceback.print_exc()
                os._exit(1)
            if found is None or not found.outputs:
                # A grammar is being compiled in a thread.
                await asyncio.sleep(0.001)
                continue
            self._outputs.put_nowait(found)
            for output in found.outputs:
                await self._taken(output.request_id)

    def shutdown(self, *_: Any, **__: Any) -> None:
        if self._stepping is not None:
            self._stepping.cancel()


@dataclass
class Answer:
    """What one request wants to say, and its row in the batch."""

    script: list[int]
    fallbacks: list[list[int]]
    row: int
    prompt: int
    computed: int
    output: list[int] = field(default_factory=list)
    at: int = 0
    fell_back: bool = False

    def wanted(self, mask: Any) -> int:
        """The token it wants; ``mask`` is the row of the grammar's mask for it, or None."""
        token = self.script[self.at] if self.at < len(self.script) else EOS
        if mask is None or allowed(mask, token):
            return token
        said = self.script[: self.at] if self.fell_back else []
        for fallback in self.fallbacks:
            if fallback[: len(said)] == said and len(fallback) > len(said) and allowed(mask, fallback[len(said)]):
                self.script, self.at, self.fell_back = fallback, len(said), True
                return fallback[self.at]
        return next(token for token in (EOS, *range(VOCABULARY)) if allowed(mask, token))

    def said(self, wanted: int, token: int) -> None:
        self.output.append(token)
        self.at += token == wanted


def allowed(mask: Any, token: int) -> bool:
    return bool(int(mask[token >> 5]) >> (token & 31) & 1)


class Budget:
    """The engine's own keeper of thinking budgets, whichever this release has, for a batch of rows."""

    def __init__(self, engine: str, config: Any) -> None:
        import torch

        self._holder: Any = None
        self._processor: Any = None
        self._interface = importlib.import_module(f"{engine}.v1.sample.logits_processor.interface")
        builtin = importlib.import_module(f"{engine}.v1.sample.logits_processor.builtin")
        reasoning = getattr(config, "reasoning_config", None)
        if reasoning is None:
            return
        if hasattr(builtin, "ThinkingTokenBudgetLogitsProcessor"):
            self._processor = builtin.ThinkingTokenBudgetLogitsProcessor(config, torch.device("cpu"), False)
        else:
            state = importlib.import_module(f"{engine}.v1.sample.thinking_budget_state")
            rows = config.scheduler_config.max_num_seqs
            copy = getattr(state, "async_tensor_h2d", None)
            if copy is not None and copy.__defaults__ == (True,):
                # In sources without their compiled parts some releases take pinned memory for available.
                copy.__defaults__ = (False,)
            configs = importlib.import_module(f"{engine}.config")
            # As when a worker makes its batch.
            with getattr(configs, f"set_current_{engine}_config")(config):
                self._holder = state.ThinkingBudgetStateHolder(reasoning, rows, 0, torch.device("cpu"), False)

    def forced(self, size: int, added: list[Any], removed: list[int], outputs: list[list[int]], logits: Any) -> Any:
        """The logits of all rows with what the budgets force."""
        update = None
        # A row that is given anew is not removed too.
        removed = [row for row in removed if row not in {new[0] for new in added}]
        if added or removed:
            update = self._interface.BatchUpdate(batch_size=size, removed=removed, added=added, moved=[])
        if self._processor is not None:
            self._processor.update_state(update)
            return self._processor.apply(logits)
        if self._holder is not None:
            self._holder.sync_batch(update)
            self._holder.update_state(outputs, None)
            return self._holder.apply_to_logits(logits, False, None)
        return logits


def output(engine: str, ids: list[str], **more: Any) -> Any:
    """What a step of the requests ``ids`` gave, as this release has it."""
    kind = importlib.import_module(f"{engine}.v1.outputs").ModelRunnerOutput
    values = {
        "req_ids": ids,
        "req_id_to_index": {request_id: n for n, request_id in enumerate(ids)},
        "logprobs": None,
        "prompt_logprobs_dict": {},
    }
    known = {f.name for f in dataclasses.fields(kind)}
    return kind(**{k: v for k, v in (values | more).items() if k in known})


def executor_class(engine: str) -> type:
    """The engine's executor without workers."""
    abstract = importlib.import_module(f"{engine}.v1.executor.abstract")
    outputs = importlib.import_module(f"{engine}.v1.outputs")
    caches = importlib.import_module(f"{engine}.v1.kv_cache_interface")

    class ScriptedExecutor(abstract.Executor):
        def _init_executor(self) -> None:
            config = getattr(self, f"{engine}_config")
            self._answers: dict[str, Answer] = {}
            self._budget = Budget(engine, config)
            self._added: list[Any] = []
            self._removed: list[int] = []
            self._scheduled: Any = None

        # What the core asks before it begins.

        supported_tasks = ("generate",)

        def get_kv_cache_specs(self) -> list[dict[str, Any]]:
            import torch

            spec, wanted = caches.FullAttentionSpec, inspect.signature(caches.FullAttentionSpec).parameters
            values = {"block_size": 16, "num_kv_heads": 1, "head_size": 64, "dtype": torch.float32, "use_mla": False}
            needed = {name for name, p in wanted.items() if p.default is inspect.Parameter.empty}
            return [{"model.layers.0.self_attn.attn": spec(**{k: v for k, v in values.items() if k in needed})}]

        def determine_available_memory(self) -> list[int]:
            return [64 << 20]

        def get_supported_kv_cache_layouts(self) -> list[list[str]]:
            return [["NHD"]]

        def initialize_from_config(self, kv_cache_configs: Any) -> None:
            pass

        def compile_or_warm_up_model(self) -> None:
            pass

        def get_simple_cpu_offload_num_blocks(self) -> None:
            return None

        def get_kv_connector_handshake_metadata(self) -> list[None]:
            return [None]

        def collective_rpc(self, method: Any, *_: Any, non_block: bool = False, **__: Any) -> Any:
            return self._given([None], non_block)

        def check_health(self) -> None:
            pass

        def shutdown(self) -> None:
            pass

        def take_draft_token_ids(self) -> None:
            return None

        # A step: the tokens of all requests that have their prompt behind them.

        def execute_model(self, scheduler_output: Any, non_block: bool = False) -> Any:
            for request_id in scheduler_output.finished_req_ids:
                if answer := self._answers.pop(request_id, None):
                    self._removed.append(answer.row)
            for new in scheduler_output.scheduled_new_reqs:
                self._add(new)
            if not scheduler_output.num_scheduled_tokens:
                return self._given(outputs.EMPTY_MODEL_RUNNER_OUTPUT, non_block)
            self._scheduled = scheduler_output
            return self._given(None, non_block)

        def sample_tokens(self, grammar_output: Any, non_block: bool = False) -> Any:
            masks = {}
            if grammar_output is not None:
                ids = grammar_output.structured_output_request_ids
                masks = dict(zip(ids, grammar_output.grammar_bitmask, strict=True))
            return self._given(self._step(masks), non_block)

        def _add(self, new: Any) -> None:
            taken = {answer.row for answer in self._answers.values()}
            row = next(row for row in range(len(taken) + 1) if row not in taken)
            extra, prompt = new.sampling_params.extra_args, list(new.prompt_token_ids)
            script = [token for step in json.loads(extra[scripted_core.SCRIPT]) for token in step]
            fallbacks = json.loads(extra.get(FALLBACKS, "[]"))
            answer = Answer(script, fallbacks, row, len(prompt), new.num_computed_tokens)
            self._answers[new.req_id] = answer
            self._added.append((row, new.sampling_params, prompt, answer.output))

        def _step(self, masks: dict[str, Any]) -> Any:
            import torch

            size = 1 + max(answer.row for answer in self._answers.values())
            logits, wanted = torch.zeros(size, VOCABULARY), {}
            for request_id, number in self._scheduled.num_scheduled_tokens.items():
                answer = self._answers[request_id]
                answer.computed += number
                if answer.computed >= answer.prompt:
                    wanted[request_id] = answer.wanted(masks.get(request_id))
                    logits[answer.row, wanted[request_id]] = 1.0
            rows: list[list[int]] = [[] for _ in range(size)]
            for answer in self._answers.values():
                rows[answer.row] = answer.output
            logits = self._budget.forced(size, self._added, self._removed, rows, logits)
            self._added, self._removed = [], []
            ids, tokens = list(self._scheduled.num_scheduled_tokens), []
            for request_id in ids:
                said = []
                if request_id in wanted:
                    answer = self._answers[request_id]
                    said = [int(logits[answer.row].argmax())]
                    answer.said(wanted[request_id], said[0])
                tokens.append(said)
            return output(engine, ids, sampled_token_ids=tokens, pooler_output=[])

        @staticmethod
        def _given(value: Any, non_block: bool) -> Any:
            if not non_block:
                return value
            done: Future[Any] = Future()
            done.set_result(value)
            return done

    return ScriptedExecutor
