"""The runs of ``engine-overlay parity``: the engine once for each setting, then the trainer on what it sampled."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

import engine_overlay
from engine_overlay import engines
from engine_overlay.cli.parity import READINGS, CannotRun
from engine_overlay.log import one_line
from engine_overlay.rl import ladder, metrics, server, trainer
from engine_overlay.rl.ladder import Finding, Step

AS_IT_IS = "as configured"


def of_engine(
    args: SimpleNamespace, prompts: list[list[int]], steps: Sequence[Step], arguments: dict[str, Any]
) -> tuple[list[dict[str, Any]], list[Finding]]:
    """One process for the engine as configured, then one for each toggle that changes something; what was not run."""
    name = _engine(args.engine)
    arguments = {"seed": args.seed, "max_model_len": _length(args, prompts)} | arguments
    runs = [_run(args, name, prompts, arguments, {}) | {"name": "as it is", "change": AS_IT_IS, "step": None}]
    variables: dict[str, str] = {}
    skipped = []
    for step in steps:
        why = step.superfluous(runs[-1]["settings"])
        if why is not None:
            skipped.append(Finding(step.layer, step.name, "already so", f"{step.change}: it {why}"))
            continue
        more = dict(step.arguments)
        if isinstance(arguments.get("hf_overrides"), dict) and "hf_overrides" in more:
            more["hf_overrides"] = arguments["hf_overrides"] | more["hf_overrides"]
        tried = variables | {key.format(ENGINE=name.upper()): value for key, value in step.variables.items()}
        try:
            run = _run(args, name, prompts, arguments | more, tried)
        except CannotRun as error:
            skipped.append(Finding(step.layer, step.name, "not possible", str(error.args[0])))
            continue
        arguments, variables = arguments | more, tried
        runs.append(run | {"name": step.name, "change": f"+ {step.change}", "step": step})
    return runs, skipped


def reach(args: SimpleNamespace) -> str:
    """The name of the server's model; CannotRun when nobody answers."""
    try:
        return server.Server(args.url, api_key=args.api_key, timeout=args.timeout).model()
    except server.ServerError as error:
        raise _told(error) from None


def _told(error: server.ServerError) -> CannotRun:
    reason, _, step = str(error).removeprefix("engine-overlay: ").rpartition("; ")
    return CannotRun(reason, step)


def of_server(
    args: SimpleNamespace, prompts: list[list[int]], sampling: trainer.Sampling
) -> tuple[list[dict[str, Any]], list[Finding]]:
    """A running server as it is, then with a cache salt for each pass, which keeps its prefix cache out."""
    there = server.Server(args.url, api_key=args.api_key, timeout=args.timeout)
    fields = {
        "n": args.samples, "max_tokens": args.max_tokens, "temperature": sampling.temperature,
        "top_p": sampling.top_p, "top_k": sampling.top_k,
    }  # fmt: skip
    try:
        model = reach(args)
        settings = {"engine": args.url, "enable_prefix_caching": there.caches_prefixes()}
        samples = there.complete(model, prompts, **fields)
        runs = [{"samples": samples, "settings": settings, "name": "as it is", "change": "as it runs", "step": None}]
        if settings["enable_prefix_caching"] is not False:
            step = next(step for step in ladder.STEPS if step.name == "caching")
            salted = there.complete(model, prompts, **fields, cache_salt=uuid.uuid4().hex)
            change = "+ prefixes of this run only (cache salt)"
            own = {"engine": args.url, "cache_salt": True}
            runs.append({"samples": salted, "settings": own, "name": "caching", "change": change, "step": step})
    except server.ServerError as error:
        raise _told(error) from None
    names = [step.name for step in ladder.STEPS if step.name in ("scheduling", "head", "batch invariance")]
    said = "a running server cannot be changed; measure with --model alone"
    return runs, [Finding(ladder.PATH, name, "not measured", said) for name in names]


def scored(
    args: SimpleNamespace,
    runs: list[dict[str, Any]],
    findings: list[Finding],
    prompts: list[list[int]],
    sampling: trainer.Sampling,
    reward: Callable[..., float] | None,
) -> dict[str, Any]:
    """Recompute every run in the trainer and put the report's data together."""
    dtype = runs[0]["settings"].get("dtype", "auto") if args.trainer_dtype == "auto" else args.trainer_dtype
    model = _load(args.model, dtype, args.trainer_head == "float32")
    for run in runs:
        _score(args, run, model, prompts, sampling, reward)
    last = runs[-1]
    ordered = [ladder.semantics(runs[0]["readings"], args.trainer_reads, sampling.filters)]
    pairs = zip(runs, runs[1:], strict=False)
    done = {
        after["name"]: ladder.judge(after["step"], run["numbers"], after["numbers"], after["settings"])
        for run, after in pairs
    }
    waiting = {finding.name: finding for finding in findings}
    ordered += [found for step in ladder.STEPS if (found := done.get(step.name) or waiting.get(step.name))]
    if len(runs) > 1:
        # What the settings cannot mend may still be a trainer that reads the numbers differently.
        after = ladder.semantics(last["readings"], args.trainer_reads, sampling.filters)
        if after.status == "cause" and after.said != ordered[0].said:
            ordered.append(after)
    ordered.append(ladder.remainder(last["numbers"], last["settings"]))
    parts = None
    if args.new_model is not None:
        del model
        parts = _split(args, last, _load(args.new_model, dtype, args.trainer_head == "float32"), prompts, sampling)
    versions = sorted({str(v) for sample in last["samples"] for v in _versions(sample)})
    ordered.append(ladder.objective(*((parts["mismatch"], parts["update"]) if parts else (None, None)), versions))
    ordered.sort(key=lambda finding: ladder.LAYERS.index(finding.layer))
    settings = runs[0]["settings"]
    about = {
        "model": args.model,
        "engine": " ".join(str(settings[k]) for k in ("engine", "version", "device", "dtype") if settings.get(k)),
        "trainer": f"transformers, {dtype}, head {args.trainer_head}, reads {args.trainer_reads} log-probabilities",
        "sampling": f"temperature {sampling.temperature}, top-p {sampling.top_p}, top-k {sampling.top_k}",
        "workload": f"{args.prompts or 'built in'}: {len(prompts)} prompts, {args.samples} answers each, "
        f"at most {args.max_tokens} tokens",
        "clip": f"{args.clip[0]}, {args.clip[1]} (GSPO {args.gspo_clip[0]}, {args.gspo_clip[1]})",
        "means": f"over each {args.aggregate}",
        "engine-overlay": engine_overlay.__version__,
    }
    return {
        "title": "Engine to trainer parity", "about": {k: str(v) for k, v in about.items()}, "runs": runs,
        "findings": ordered, "split": parts, "sequences": _sequences(last),
    }  # fmt: skip


def _score(
    args: SimpleNamespace,
    run: dict[str, Any],
    model: Any,
    prompts: list[list[int]],
    sampling: trainer.Sampling,
    reward: Callable[..., float] | None,
) -> None:
    samples = run["samples"]
    try:
        found = trainer.score(model, [(prompts[s["prompt"]], s["token_ids"]) for s in samples], sampling)
    except ValueError as error:
        raise CannotRun(f"the trainer cannot score this: {error}", "have both sides the same model?") from None
    old, mask = metrics.pad([s["logprobs"] for s in samples])
    rewards = None
    if reward is not None:
        rewards = [reward(prompts[s["prompt"]], s["token_ids"], s["text"]) for s in samples]
        for sample, value in zip(samples, rewards, strict=True):
            sample["reward"] = value
    exact, _ = metrics.pad(found.entropy)
    more = {
        "clip": tuple(args.clip), "gspo_clip": tuple(args.gspo_clip), "rewards": rewards,
        "exact_entropy": exact, "aggregate": args.aggregate,
    }  # fmt: skip
    rows = {name: metrics.pad(getattr(found, name))[0] for name in READINGS}
    run["readings"] = {name: metrics.compare(values, old, mask, **more) for name, values in rows.items()}
    run["numbers"] = run["readings"][args.trainer_reads]
    run["rows"] = (rows[args.trainer_reads], old, mask)
    cached = sum(sample.get("cached_tokens") or 0 for sample in samples)
    run["settings"] = run["settings"] | {"cached_prompt_tokens": cached}


def _split(
    args: SimpleNamespace, run: dict[str, Any], model: Any, prompts: list[list[int]], sampling: trainer.Sampling
) -> dict[str, Any]:
    """Numbers of the backend mismatch, of the policy update, and of both together, on the tokens all three have."""
    found = trainer.score(model, [(prompts[s["prompt"]], s["token_ids"]) for s in run["samples"]], sampling)
    new, _ = metrics.pad(getattr(found, args.trainer_reads))
    old, behaviour, mask = run["rows"]
    parts = metrics.split(behaviour, old, new, mask)
    zero = np.zeros_like(behaviour)
    return {
        name: metrics.compare(
            getattr(parts, name).d, zero, parts.total.kept, clip=tuple(args.clip), aggregate=args.aggregate
        )
        for name in ("mismatch", "update", "total")
    }


def _sequences(run: dict[str, Any]) -> list[dict[str, Any]]:
    new, old, mask = run["rows"]
    pair = metrics.log_ratio(new, old, mask)
    means = metrics.sequence_log_ratio(pair)
    rows = []
    for i, sample in enumerate(run["samples"]):
        n, kept = len(sample["token_ids"]), pair.kept[i]
        rows.append(
            {
                "sequence": i,
                "prompt": sample["prompt"],
                "tokens": n,
                "mean_log_ratio": float(means[i]),
                "gspo_ratio": float(np.exp(means[i])),
                "mean_abs_log_ratio": float(np.abs(pair.d[i][kept]).mean()) if kept.any() else float("nan"),
                "max_abs_log_ratio": float(np.abs(pair.d[i]).max(initial=0.0)),
                "no_probability": int(mask[i].sum() - kept.sum()),
                **({"reward": sample["reward"]} if "reward" in sample else {}),
                "token_ids": sample["token_ids"],
                "engine": [round(v, 7) for v in old[i, :n].tolist()],
                "trainer": [round(v, 7) for v in new[i, :n].tolist()],
                "log_ratio": [round(v, 9) if k else None for v, k in zip(pair.d[i, :n].tolist(), kept, strict=False)],
            }
        )
    return rows


def _versions(sample: dict[str, Any]) -> list[Any]:
    return [span["version"] for span in sample.get("weight_versions") or []]


def _engine(name: str | None) -> str:
    found = [engine.name for engine in engines.installed() if name in (None, engine.name)]
    if not found:
        raise CannotRun(
            f"{name or 'no engine'} is not installed here" if name else "no engine is installed here",
            "install vllm or aphrodite-engine, or measure a server with --url",
        )
    return found[0]


def _length(args: SimpleNamespace, prompts: list[list[int]]) -> int:
    """As long as this workload: a model's full context may not fit into the memory that is free."""
    return -(-(max(map(len, prompts)) + args.max_tokens + 1) // 64) * 64


def _run(
    args: SimpleNamespace, name: str, prompts: list[list[int]], arguments: dict[str, Any], variables: dict[str, str]
) -> dict[str, Any]:
    line = f"engine: {json.dumps(arguments)} {' '.join(f'{k}={v}' for k, v in variables.items())}".rstrip()
    print(line, file=sys.stderr if args.json else sys.stdout, flush=True)
    job = {
        "engine": name,
        "model": str(args.model),
        "arguments": arguments,
        "prompts": prompts,
        "sampling": {
            "n": args.samples, "max_tokens": args.max_tokens, "temperature": args.temperature,
            "top_p": args.top_p, "top_k": args.top_k,
        },
    }  # fmt: skip
    with tempfile.TemporaryDirectory(prefix="engine-overlay-parity-") as folder:
        question, answer, log = (Path(folder) / part for part in ("job.json", "answer.json", "log"))
        question.write_text(json.dumps(job))
        with log.open("wb") as output:
            command = [sys.executable, "-m", "engine_overlay.cli.rollout", str(question), str(answer)]
            process = subprocess.Popen(
                command, env=dict(os.environ) | variables, stdout=output, stderr=output, start_new_session=True
            )
            try:
                process.wait(args.timeout)
            except subprocess.TimeoutExpired:
                raise CannotRun(f"the engine was not done after {args.timeout:.0f} s", "give --timeout more") from None
            finally:
                # Its workers are processes too, also of an engine that ended badly.
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        if not answer.is_file():
            raise CannotRun(f"the engine ended without an answer: {_last(log)}", "start it by hand with that model")
        found = json.loads(answer.read_text())
        if "error" in found:
            reason = _root(log) or found["error"]
            raise CannotRun(f"the engine failed: {reason}", "change --engine-arg, or start it by hand with that model")
    return found


def _last(log: Path) -> str:
    lines = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()]
    return lines[-1][:300] if lines else "it said nothing"


def _root(log: Path) -> str | None:
    """The first error of the engine's own process: the one it raises to its caller only says to look above."""
    for line in log.read_text(errors="replace").splitlines():
        head, _, said = line.rpartition("] ")
        name = said.partition(":")[0]
        if "ERROR" in head and name.endswith(("Error", "Exception")) and " " not in name:
            return said[:300]
    return None


def _load(folder: Path, dtype: str, fp32_head: bool) -> Any:
    try:
        return trainer.load(str(folder), dtype=dtype if dtype in trainer.DTYPES else "auto", fp32_head=fp32_head)
    except Exception as error:
        # transformers raises many kinds for a model it does not know or a file that is missing.
        raise CannotRun(f"transformers cannot load {folder}: {one_line(error)}", "is it a causal model?") from None
