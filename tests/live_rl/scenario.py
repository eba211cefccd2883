"""In-flight updates on a real ``AsyncLLM``, in a process of its own; what happened is written as JSON.

    python -m tests.live_rl.scenario MODEL OTHER_WEIGHTS TRUNCATED_WEIGHTS ANSWER.json
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from pathlib import Path
from typing import Any

from engine_overlay.rl import Call, Update, inflight_update
from engine_overlay.rl.trainer import Sampling

SAMPLING = Sampling(temperature=0.7, top_p=0.9, top_k=50)
IN_FLIGHT = 32
TOKENS = 64
BLOCK = 128
"""Tokens of a block of the KV cache on a CPU; only full blocks are reused."""
PROMPT = [(7 * i) % 251 for i in range(160)]


def load(folder: str) -> Call:
    return Call("reload_weights", kwargs={"weights_path": folder})


class Engine:
    def __init__(self, model: str, **arguments: Any) -> None:
        from vllm import AsyncEngineArgs
        from vllm.v1.engine.async_llm import AsyncLLM

        self.llm = AsyncLLM.from_engine_args(
            AsyncEngineArgs(
                model=model, dtype="float32", enforce_eager=True, max_model_len=512, max_num_seqs=IN_FLIGHT,
                logprobs_mode="processed_logprobs", **arguments,
            )
        )  # fmt: skip
        self.asked = 0
        self.tokens = 0

    async def one(self, prompt: list[int], count: int = TOKENS, **more: Any) -> dict[str, Any]:
        """One answer, streamed, so that ``tokens`` tells how far all of them are."""
        from vllm import SamplingParams
        from vllm.sampling_params import RequestOutputKind

        params = SamplingParams(
            temperature=SAMPLING.temperature, top_p=SAMPLING.top_p, top_k=SAMPLING.top_k, max_tokens=count,
            ignore_eos=True, logprobs=1, detokenize=False, output_kind=RequestOutputKind.DELTA,
        )  # fmt: skip
        # No seed of their own: on a CPU this release dies of a seeded request whose prompt is computed in chunks, as
        # 32 requests at once are after clear_cache.
        self.asked += 1
        ids, numbers, spans, output, cached = [], [], None, None, 0
        async for output in self.llm.generate({"prompt_token_ids": prompt, **more}, params, f"r{self.asked}"):
            part = output.outputs[0]
            ids += part.token_ids
            numbers += [float(at[token].logprob) for at, token in zip(part.logprobs, part.token_ids, strict=True)]
            spans = part.weight_versions or spans
            cached = max(cached, output.num_cached_tokens or 0)
            self.tokens += len(part.token_ids)
        return {
            "prompt": prompt, "token_ids": ids, "logprobs": numbers, "finish_reason": output.outputs[0].finish_reason,
            "cached": cached, "spans": [[s.version, s.start, s.end] for s in spans or []],
        }  # fmt: skip

    async def many(self) -> list[dict[str, Any]]:
        return await asyncio.gather(*(self.one([*PROMPT, i]) for i in range(IN_FLIGHT)))

    async def under_way(self) -> asyncio.Future[list[dict[str, Any]]]:
        """Start all requests and return when each has some tokens on average."""
        self.tokens = 0
        task = asyncio.ensure_future(self.many())
        end = time.monotonic() + 120
        while self.tokens < IN_FLIGHT * 8 and time.monotonic() < end:
            await asyncio.sleep(0.005)
        return task


def said(update: Update) -> dict[str, Any]:
    return {name: getattr(update, name) for name in Update.__dataclass_fields__}


async def scenario(model: str, other: str, truncated: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    engine = Engine(model)
    llm = engine.llm
    try:
        # Keep: requests go on, with old keys and values.
        task = await engine.under_way()
        update = await inflight_update(llm, load(other), weight_version="other")
        found["keep"] = {"update": said(update), "answers": await task}
        # A new request finds the prefix that the old weights computed; with the salt it does not.
        found["stale"] = await engine.one([*PROMPT, 3])
        found["salted"] = await engine.one([*PROMPT, 3], cache_salt=update.cache_salt)
        # Nothing is in flight now, so the cache can be emptied after the update.
        update = await inflight_update(llm, load(other), weight_version="again", reset_prefix_cache=True)
        found["reset"] = {"update": said(update), "answer": await engine.one([*PROMPT, 3])}
        # Clear: requests in flight are computed again under the new weights.
        task = await engine.under_way()
        update = await inflight_update(llm, load(model), weight_version="first", clear_cache=True)
        found["clear"] = {"update": said(update), "answers": await task, "after": await engine.one([*PROMPT, 3])}
        # While requests hold blocks an engine does not empty its prefix cache.
        task = await engine.under_way()
        update = await inflight_update(llm, load(model), reset_prefix_cache=True)
        found["held"] = {"update": said(update), "answers": len(await task)}
        # Updates that raise, in the workers and in a function of ours.
        task = await engine.under_way()
        errors = []
        for bad in (load("/no/such/folder"), Call("no_such_method"), raises):
            try:
                await inflight_update(llm, bad, weight_version="bad")
                errors.append(None)
            except Exception as error:
                errors.append(f"{type(error).__name__}: {error}")
        found["raised"] = {
            "errors": errors, "paused": await llm.is_paused(), "answers": await task,
            "version": await llm.get_weight_version(), "after": await engine.one([*PROMPT, 3]),
        }  # fmt: skip
        # One that raises when half of the layers are loaded, and the way back.
        task = await engine.under_way()
        try:
            await inflight_update(llm, load(truncated), fallback=load(model), clear_cache=True)
            error = None
        except Exception as raised:
            error = str(raised)
        found["half"] = {"error": error, "answers": await task, "after": await engine.one([*PROMPT, 3])}
        # Two at once, and one that is cancelled.
        task = await engine.under_way()
        await asyncio.gather(*(inflight_update(llm, load(folder)) for folder in (other, model)))
        cancelled = asyncio.ensure_future(inflight_update(llm, wait))
        await asyncio.sleep(0.2)
        cancelled.cancel()
        await asyncio.wait([cancelled])
        found["together"] = {
            "cancelled": cancelled.cancelled(), "paused": await llm.is_paused(),
            "lengths": [len(answer["token_ids"]) for answer in await task],
        }  # fmt: skip
    finally:
        llm.shutdown()
    return found


def raises(engine: Any) -> None:
    raise RuntimeError("the trainer is gone")


async def wait(engine: Any) -> None:
    await asyncio.sleep(60)


if __name__ == "__main__":
    result = asyncio.run(scenario(*sys.argv[1:4]))
    Path(sys.argv[4]).write_text(json.dumps(result))
