"""One training run: an engine that samples all the time, a trainer, and weight updates while answers are under way.

    python -m examples.grpo_parity.loop SETTING ANSWER.json [options]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from engine_overlay.rl import Call, inflight_update, metrics
from engine_overlay.rl.trainer import Sampling, logits_of, of_tokens, processed
from examples.grpo_parity import task

PROFILE = {
    "logprobs_mode": "processed_logprobs",
    "enable_prefix_caching": False,
    "async_scheduling": False,
    "hf_overrides": {"head_dtype": "float32"},
}
SETTINGS = {"stock": {}, "profile": PROFILE, "reference": PROFILE}
"""Engine arguments. The reference differs in the trainer: it scores the rollouts itself, with the weights of then."""

SAMPLING = Sampling(temperature=0.7, top_p=0.9, top_k=50)
CLIP = (0.2, 0.2)
GSPO_CLIP = (3e-2, 4e-2)
"""Wider than the paper's: answers here have 32 tokens, not thousands, so their mean varies more."""


@dataclass
class Rollout:
    """One answer. ``engine``: its log-probabilities as the engine gave them; ``version``: of each token's weights."""

    prompt: list[int]
    kind: int
    tokens: list[int]
    engine: list[float]
    version: list[int]
    reward: float = field(init=False)

    def __post_init__(self) -> None:
        self.reward = task.reward(self.kind, self.tokens)


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--steps", type=int, default=80)
    parser.add_argument("--prompts", type=int, default=8, help="prompts of a step")
    parser.add_argument("--group", type=int, default=8, help="answers to a prompt")
    parser.add_argument("--tokens", type=int, default=32, help="tokens of an answer")
    parser.add_argument("--rate", type=float, default=5e-4, help="learning rate")
    parser.add_argument("--objective", choices=("grpo", "gspo"), default="grpo")


async def sample(engine: Any, step: int, args: argparse.Namespace) -> list[Rollout]:
    """The answers of one step, all at once; updates may come while they are written."""
    from vllm import SamplingParams
    from vllm.sampling_params import RequestOutputKind

    async def one(i: int, kind: int, ids: list[int]) -> Rollout:
        params = SamplingParams(
            temperature=SAMPLING.temperature, top_p=SAMPLING.top_p, top_k=SAMPLING.top_k, max_tokens=args.tokens,
            ignore_eos=True, logprobs=1, detokenize=False, seed=step * 10007 + i,
            output_kind=RequestOutputKind.FINAL_ONLY,
        )  # fmt: skip
        async for output in engine.generate({"prompt_token_ids": ids}, params, f"{step}-{i}"):
            done = output.outputs[0]
        tokens = list(done.token_ids)
        numbers = [float(at[token].logprob) for at, token in zip(done.logprobs, tokens, strict=True)]
        return Rollout(ids, kind, tokens, numbers, versions(done.weight_versions, len(tokens)))

    asked = task.prompts(args.prompts, seed=step)
    members = [(kind, ids) for kind, ids in asked for _ in range(args.group)]
    return await asyncio.gather(*(one(i, kind, ids) for i, (kind, ids) in enumerate(members)))


def versions(spans: Any, count: int) -> list[int]:
    """The version of each token from the output's spans; an engine whose weights nobody named says "default"."""
    found = [0] * count
    for span in spans or ():
        end = min(span.end, count)
        found[span.start : end] = [0 if span.version == "default" else int(span.version)] * (end - span.start)
    return found


class Trainer:
    def __init__(self, model: Any, args: argparse.Namespace) -> None:
        self.model, self.args = model, args
        self.optimiser = torch.optim.AdamW(model.parameters(), lr=args.rate, weight_decay=0.0)
        # Weights of the last versions, to score a rollout with those that it was sampled with.
        self.history: dict[int, dict[str, Any]] = {}
        self.remember(0)

    def remember(self, version: int) -> None:
        self.history[version] = {name: value.clone() for name, value in self.model.state_dict().items()}
        self.history.pop(version - 4, None)

    def scores(self, batch: list[Rollout]) -> tuple[Any, Any]:
        """Log-probabilities and exact entropy of each token, (N, T); gradients go through."""
        ids = torch.tensor([[*r.prompt, *r.tokens] for r in batch])
        logits = processed(logits_of(self.model, ids, self.args.tokens), SAMPLING)
        entropy = torch.special.entr(logits.detach().softmax(dim=-1)).sum(dim=-1)
        return of_tokens(logits, ids[:, -self.args.tokens :]), entropy

    def of_then(self, batch: list[Rollout]) -> torch.Tensor:
        """Log-probabilities under the weights that each token was sampled with."""
        version = torch.tensor([r.version for r in batch])
        result = torch.full(version.shape, -torch.inf)
        now = {name: value.clone() for name, value in self.model.state_dict().items()}
        with torch.no_grad():
            for wanted in version.unique().tolist():
                self.model.load_state_dict(self.history[wanted])
                result = torch.where(version == wanted, self.scores(batch)[0], result)
        self.model.load_state_dict(now)
        return result

    def train(self, batch: list[Rollout], behaviour: torch.Tensor) -> dict[str, Any]:
        """One pass over the batch in two halves, each with a step of its own; the numbers of the first look at it."""
        rewards = torch.tensor([r.reward for r in batch])
        groups = rewards.view(-1, self.args.group)
        advantages = ((groups - groups.mean(1, keepdim=True)) / (groups.std(1, keepdim=True) + 1e-4)).view(-1)
        with torch.no_grad():
            new, entropy = self.scores(batch)
        numbers = metrics.compare(
            new, behaviour, clip=CLIP, gspo_clip=GSPO_CLIP, rewards=rewards, exact_entropy=entropy
        )
        pair = metrics.log_ratio(new, behaviour)
        numbers["clip_active"] = metrics.clip_active(pair, advantages, *CLIP)
        # Groups stay whole, halves alternate.
        order = torch.arange(len(batch)).view(-1, self.args.group)
        for half in (order[::2].flatten(), order[1::2].flatten()):
            part = [batch[i] for i in half.tolist()]
            loss = self.loss(self.scores(part)[0], behaviour[half], advantages[half])
            self.optimiser.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            self.optimiser.step()
        return numbers

    def loss(self, new: Any, old: Any, advantages: Any) -> Any:
        """Clipped surrogate; tokens to which one side gives no probability are left out."""
        usable = torch.isfinite(new) & torch.isfinite(old)
        d = torch.where(usable, new, 0.0) - torch.where(usable, old, 0.0)
        count = usable.sum(1).clamp(min=1)
        low, high = CLIP
        if self.args.objective == "gspo":
            low, high = GSPO_CLIP
            ratio = (d.sum(1) / count).exp()
            gain = torch.minimum(ratio * advantages, ratio.clamp(1 - low, 1 + high) * advantages)
            return -gain.mean()
        ratio, a = d.exp(), advantages[:, None]
        gain = torch.minimum(ratio * a, ratio.clamp(1 - low, 1 + high) * a)
        return -((gain * usable).sum(1) / count).mean()


async def run(setting: str, args: argparse.Namespace) -> dict[str, Any]:
    from vllm import AsyncEngineArgs
    from vllm.v1.engine.async_llm import AsyncLLM

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        trainer = Trainer(task.model(folder / "0"), args)
        engine = AsyncLLM.from_engine_args(
            AsyncEngineArgs(
                model=str(folder / "0"), skip_tokenizer_init=True, dtype="float32", enforce_eager=True,
                max_model_len=task.PROMPT + args.tokens + 8, max_num_seqs=args.prompts * args.group * 2,
                **SETTINGS[setting],
            )
        )  # fmt: skip
        steps, mixed, pauses = [], 0, []
        try:
            waiting = asyncio.ensure_future(sample(engine, 0, args))
            for step in range(args.steps):
                batch = await waiting
                # The next answers are under way while this batch is learnt from, and are caught by the update.
                waiting = asyncio.ensure_future(sample(engine, step + 1, args))
                of_then = await asyncio.to_thread(trainer.of_then, batch)
                engine_says = torch.tensor([r.engine for r in batch])
                behaviour = of_then if setting == "reference" else engine_says
                numbers = await asyncio.to_thread(trainer.train, batch, behaviour)
                gap = metrics.compare(of_then, engine_says)
                numbers["engine_to_trainer"] = gap["mean_abs_log_ratio"]
                numbers["several_versions"] = float(np.mean([len(set(r.version)) > 1 for r in batch]))
                steps.append({k: v for k, v in numbers.items() if isinstance(v, (int, float))})
                trainer.remember(step + 1)
                weights = folder / str(step + 1)
                trainer.model.save_pretrained(weights)
                done = await inflight_update(
                    engine, Call("reload_weights", kwargs={"weights_path": str(weights)}), weight_version=step + 1
                )
                pauses.append(done.paused)
                mixed += sum(len(set(r.version)) > 1 for r in batch)
                print(
                    f"{setting} {step}: reward {numbers['reward']:.3f} ratio {numbers['ratio_new_old']:.3f} clip "
                    f"{numbers['clip_rate_ppo']:.3f} engine to trainer {numbers['engine_to_trainer']:.1e}", flush=True,
                )  # fmt: skip
            await waiting
        finally:
            engine.shutdown()
    return {
        "setting": setting, "options": vars(args), "steps": steps, "answers_across_an_update": mixed,
        "pause_seconds": float(np.median(pauses)),
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("setting", choices=SETTINGS)
    parser.add_argument("answer", type=Path)
    options(parser)
    args = parser.parse_args()
    torch.set_num_threads(1)
    started = time.monotonic()
    answer = args.answer
    del args.answer
    found = asyncio.run(run(args.setting, args))
    answer.write_text(json.dumps(found | {"seconds": time.monotonic() - started}))


if __name__ == "__main__":
    main()
