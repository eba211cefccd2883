"""``engine-overlay parity``: how far the engine's log-probabilities are from a trainer's, why, and what to change."""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import json
import math
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from engine_overlay.cli.main import fail
from engine_overlay.log import one_line

TOKENIZERS = ("tokenizer.json", "tokenizer_config.json", "tokenizer.model", "vocab.json", "tekken.json")
READINGS = ("processed", "temperature", "raw")


class CannotRun(Exception):
    """Wrong input: a reason and a next step."""


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--model", type=Path, required=True, help="folder of the model, for the engine and the trainer")
    parser.add_argument("--out", type=Path, default=Path("report.html"), help="the report; its numbers go beside it")
    parser.add_argument("--url", help="a running server to measure instead of an engine of our own")
    parser.add_argument("--api-key", help="of that server")
    parser.add_argument("--engine", help="which installed engine, when there are two")
    parser.add_argument(
        "--engine-arg", action="append", default=[], metavar="KEY=VALUE",
        help="an argument of the engine's LLM, its value as JSON or text; may be given again",
    )  # fmt: skip
    parser.add_argument("--toggle", default=None, help="what to toggle, in this order; comma-separated, or none")
    work = parser.add_argument_group("workload")
    work.add_argument("--prompts", type=Path, help="a .jsonl file (prompt or prompt_token_ids), or a prompt a line")
    work.add_argument("--limit", type=int, help="at most so many prompts")
    work.add_argument("--samples", type=int, default=2, help="answers to each prompt")
    work.add_argument("--max-tokens", type=int, default=96, help="tokens of an answer")
    work.add_argument("--temperature", type=float, default=0.7)
    work.add_argument("--top-p", type=float, default=0.9)
    work.add_argument("--top-k", type=int, default=50, help="-1 for all")
    work.add_argument("--seed", type=int, default=0, help="of the engine")
    work.add_argument("--reward", metavar="MODULE:FUNCTION", help="called with (prompt ids, answer ids, answer text)")
    trainer = parser.add_argument_group("trainer")
    trainer.add_argument("--trainer", choices=("hf",), default="hf", help="hf: transformers")
    trainer.add_argument("--trainer-dtype", default="auto", help="auto (the engine's), float32, bfloat16 or float16")
    trainer.add_argument("--trainer-head", choices=("float32", "model"), default="float32", help="type of its head")
    trainer.add_argument(
        "--trainer-reads", choices=READINGS, default="processed",
        help="what your trainer computes: after all processing, after temperature only, or the model's own",
    )  # fmt: skip
    trainer.add_argument("--new-model", type=Path, help="the policy after an update, to take its ratio apart")
    trainer.add_argument("--clip", type=float, nargs=2, default=(0.2, 0.2), metavar=("LOW", "HIGH"))
    trainer.add_argument("--gspo-clip", type=float, nargs=2, default=(3e-4, 4e-4), metavar=("LOW", "HIGH"))
    trainer.add_argument(
        "--aggregate", choices=("token", "sequence"), default="token",
        help="means over tokens, or within each sequence first",
    )  # fmt: skip
    parser.add_argument("--timeout", type=float, default=1800.0, help="seconds for one run of the engine")


def main(args: argparse.Namespace) -> int:
    """0: report written, nothing to change; 1: written, with a cause in it; 2: wrong input, nothing written."""
    try:
        return _main(args)
    except CannotRun as error:
        reason, step = error.args
        return fail("parity", reason, step)


def _main(args: argparse.Namespace) -> int:
    _extras()
    from engine_overlay.cli import parity_runs
    from engine_overlay.rl import ladder, report, trainer

    sampling = _checked(args, trainer)
    steps = _steps(args.toggle, ladder)
    arguments = dict(_argument(text) for text in args.engine_arg)
    for name in ("model", "new_model"):
        folder = getattr(args, name)
        if folder is not None and not (folder / "config.json").is_file():
            raise CannotRun(f"{folder} is no folder with a config.json", f"give --{name.replace('_', '-')} a model")
    reward = _reward(args.reward)
    if args.url:
        parity_runs.reach(args)
    prompts = _prompts(args)
    if args.url:
        runs, findings = parity_runs.of_server(args, prompts, sampling)
    else:
        runs, findings = parity_runs.of_engine(args, prompts, steps, arguments)
    found = parity_runs.scored(args, runs, findings, prompts, sampling, reward)
    try:
        page, beside = report.write(found, args.out)
    except OSError as error:
        raise CannotRun(f"{args.out} cannot be written: {error.strerror}", "give --out another place") from None
    for finding in found["findings"]:
        print(f"{finding.layer}: {finding.name}: {finding.status}: {finding.said}")
        if finding.advice:
            print(f"    change: {finding.advice}")
    print(f"report: {page}, numbers: {beside}")
    return 1 if any(finding.status == "cause" for finding in found["findings"]) else 0


def _extras() -> None:
    for name, where in (("numpy", "rl"), ("matplotlib", "rl"), ("torch", ""), ("transformers", "")):
        if importlib.util.find_spec(name) is None:
            step = "pip install 'engine-overlay[rl]'" if where else "run it in the environment of your engine"
            raise CannotRun(f"{name} is not installed", step)


def _checked(args: argparse.Namespace, trainer: Any) -> Any:
    for name in ("samples", "max_tokens", "limit"):
        value = getattr(args, name)
        if value is not None and value < 1:
            raise CannotRun(f"--{name.replace('_', '-')} is {value}", "1 or more is wanted")
    if args.trainer_dtype not in trainer.DTYPES:
        raise CannotRun(f"--trainer-dtype is {args.trainer_dtype}", f"use one of {', '.join(trainer.DTYPES)}")
    if min(*args.clip, *args.gspo_clip) < 0:
        raise CannotRun("a clip distance is negative", "they are distances from 1, as in --clip 0.2 0.2")
    if not args.out.absolute().parent.is_dir():
        raise CannotRun(f"{args.out.absolute().parent} is no folder", "make it, or give --out another place")
    if args.out.suffix == ".json":
        raise CannotRun(f"--out {args.out} would hold both the report and its numbers", "name it .html")
    try:
        return trainer.Sampling(args.temperature, args.top_p, args.top_k)
    except ValueError as error:
        raise CannotRun(str(error), 'see "engine-overlay parity --help"') from None


def _steps(text: str | None, ladder: Any) -> list[Any]:
    if text is None:
        return list(ladder.STEPS)
    wanted = [] if text == "none" else [name.strip() for name in text.split(",")]
    unknown = [name for name in wanted if name not in ladder.NAMES]
    if unknown:
        raise CannotRun(f"--toggle {unknown[0]} is unknown", f"use {', '.join(ladder.NAMES)}, or none")
    return [step for step, name in zip(ladder.STEPS, ladder.NAMES, strict=True) if name in wanted]


def _argument(text: str) -> tuple[str, Any]:
    key, equals, value = text.partition("=")
    key = key.strip().removeprefix("--").replace("-", "_")
    if not equals or not key.isidentifier():
        raise CannotRun(f"--engine-arg {text} is no KEY=VALUE", "as in --engine-arg enforce_eager=true")
    try:
        return key, json.loads(value)
    except ValueError:
        return key, value


def _prompts(args: argparse.Namespace) -> list[list[int]]:
    from engine_overlay.rl import workload

    try:
        return workload.prompts(args.prompts, _encode(args.model), args.limit)
    except workload.WorkloadError as error:
        raise CannotRun(str(error), "see --prompts in the help") from None


def _encode(folder: Path) -> Callable[[str], list[int]] | None:
    """Loads the tokenizer at the first text: that takes seconds, and a broken file should be told at once."""
    if not any((folder / name).is_file() for name in TOKENIZERS):
        return None
    loaded: list[Any] = []

    def encode(text: str) -> list[int]:
        if not loaded:
            from transformers import AutoTokenizer

            try:
                loaded.append(AutoTokenizer.from_pretrained(folder))
            except Exception as error:
                # transformers raises many kinds.
                reason = f"the tokenizer in {folder} cannot be loaded: {one_line(error)}"
                raise CannotRun(reason, "give prompt_token_ids") from None
        return loaded[0].encode(text)

    return encode


def _reward(name: str | None) -> Callable[..., float] | None:
    if name is None:
        return None
    module, colon, function = name.partition(":")
    sys.path.insert(0, "")
    try:
        found = getattr(importlib.import_module(module), function) if colon else None
    except Exception as error:
        raise CannotRun(f"--reward {name}: {one_line(error)}", "write it like my_rewards:exact_match") from None
    if not callable(found):
        raise CannotRun(f"--reward {name} is no function", "write it like my_rewards:exact_match")

    def reward(prompt: list[int], answer: list[int], text: str) -> float:
        try:
            value = float(found(prompt, answer, text))
        except Exception as error:
            raise CannotRun(f"--reward {name} raised {one_line(error)}", "call it on its own first") from None
        if not math.isfinite(value):
            raise CannotRun(f"--reward {name} returned {value}", "a finite number is wanted")
        return value

    return reward
