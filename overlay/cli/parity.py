"""``engine-overlay parity``: how far the engine's log-probabilities are from a trainer's, why, and what to change."""

from __future__ import annotations

import importlib
import importlib.util
import math
import sys
from collections.abc import Callable
from enum import Enum
from json import loads
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, Any

import typer

from engine_overlay.cli.main import fail
from engine_overlay.cli.options import AsJson, Engine
from engine_overlay.cli.tables import say, show_json, style_of
from engine_overlay.log import one_line

EXAMPLES = (
    "engine-overlay parity --model ./Qwen3-0.6B --prompts prompts.jsonl --out report.html",
    "engine-overlay parity --model ./Qwen3-0.6B --url http://127.0.0.1:8000 --json",
)
EXITS = {
    0: "the report was written, and there is nothing to change",
    1: "it was written, with a cause in it",
    2: "wrong input, and nothing was written",
}

TOKENIZERS = ("tokenizer.json", "tokenizer_config.json", "tokenizer.model", "vocab.json", "tekken.json")
READINGS = ("processed", "temperature", "raw")


Reading = Enum("Reading", {name: name for name in READINGS}, type=str)  # type: ignore[misc]


class Trainer(str, Enum):
    hf = "hf"


class Head(str, Enum):
    float32 = "float32"
    model = "model"


class Aggregate(str, Enum):
    token = "token"
    sequence = "sequence"


class CannotRun(Exception):
    """Wrong input: a reason and a next step."""


def _work(name: str, metavar: str | None, meaning: str) -> Any:
    return typer.Option(name, metavar=metavar, help=meaning, rich_help_panel="Workload")


def _train(name: str, metavar: str | None, meaning: str) -> Any:
    return typer.Option(name, metavar=metavar, help=meaning, rich_help_panel="Trainer")


def command(
    model: Annotated[
        Path, typer.Option("--model", metavar="FOLDER", help="Folder of the model, for the engine and the trainer.")
    ],
    out: Annotated[
        Path, typer.Option("--out", metavar="FILE", help="The report; its numbers go beside it, as .json.")
    ] = Path("report.html"),
    url: Annotated[
        str | None, typer.Option("--url", metavar="URL", help="A running server to measure, not an engine of our own.")
    ] = None,
    api_key: Annotated[str | None, typer.Option("--api-key", metavar="KEY", help="Of that server.")] = None,
    engine: Annotated[
        Engine | None, typer.Option("--engine", help="Which installed engine, when there are two.")
    ] = None,
    engine_arg: Annotated[
        list[str] | None,
        typer.Option(
            "--engine-arg", metavar="KEY=VALUE", help="An argument of the engine's LLM, as JSON or text; repeatable."
        ),
    ] = None,
    toggle: Annotated[
        str | None,
        typer.Option("--toggle", metavar="NAMES", help="What to toggle, in this order; comma-separated, or none."),
    ] = None,
    prompts: Annotated[
        Path | None,
        _work(
            "--prompts", "FILE", "A .jsonl file (prompt or prompt_token_ids), or a prompt a line; default: built in."
        ),
    ] = None,
    limit: Annotated[int | None, _work("--limit", "N", "At most so many prompts.")] = None,
    samples: Annotated[int, _work("--samples", "N", "Answers to each prompt.")] = 2,
    max_tokens: Annotated[int, _work("--max-tokens", "N", "Tokens of an answer.")] = 96,
    temperature: Annotated[float, _work("--temperature", "T", "Of the samples.")] = 0.7,
    top_p: Annotated[float, _work("--top-p", "P", "Of the samples.")] = 0.9,
    top_k: Annotated[int, _work("--top-k", "K", "Of the samples; -1 for all.")] = 50,
    seed: Annotated[int, _work("--seed", "N", "Of the engine.")] = 0,
    reward: Annotated[
        str | None,
        _work("--reward", "MODULE:FUNCTION", "Called with prompt ids, answer ids and the answer's text."),
    ] = None,
    trainer: Annotated[Trainer, _train("--trainer", None, "What recomputes; hf is transformers.")] = Trainer.hf,
    trainer_dtype: Annotated[
        str, _train("--trainer-dtype", "DTYPE", "auto (the engine's), float32, bfloat16 or float16.")
    ] = "auto",
    trainer_head: Annotated[Head, _train("--trainer-head", None, "Type of its last projection.")] = Head.float32,
    trainer_reads: Annotated[
        Reading,
        _train("--trainer-reads", None, "After all processing, after temperature only, or the model's own (raw)."),
    ] = Reading.processed,
    new_model: Annotated[
        Path | None, _train("--new-model", "FOLDER", "The policy after an update, to take its ratio apart.")
    ] = None,
    clip: Annotated[tuple[float, float], _train("--clip", "LOW HIGH", "Distances of the clip from 1.")] = (0.2, 0.2),
    gspo_clip: Annotated[
        tuple[float, float], _train("--gspo-clip", "LOW HIGH", "The same for ratios of sequences.")
    ] = (3e-4, 4e-4),
    aggregate: Annotated[
        Aggregate, _train("--aggregate", None, "Means over tokens, or within each sequence first.")
    ] = Aggregate.token,
    timeout: Annotated[float, typer.Option("--timeout", metavar="SECONDS", help="For one run of the engine.")] = 1800.0,
    json: AsJson = False,
) -> int:
    """Measure how far the engine's log-probabilities are from a trainer's, find out why, and say what to change.

    The engine samples answers, transformers recomputes their log-probabilities, and one setting after the other is
    toggled, each in a process of its own, until the gap is explained. The report is a page with the figures; all
    numbers are in a JSON file beside it.

    JSON: an object with report and numbers (paths) and findings (layer, name, status, said, advice).
    """
    args = SimpleNamespace(
        **{name: value.value if isinstance(value, Enum) else value for name, value in locals().items()}
    )
    try:
        return _run(args)
    except CannotRun as error:
        reason, step = error.args
        return fail("parity", reason, step)


def _run(args: SimpleNamespace) -> int:
    _extras()
    from engine_overlay.cli import parity_runs
    from engine_overlay.rl import ladder, report, trainer

    sampling = _checked(args, trainer)
    steps = _steps(args.toggle, ladder)
    arguments = dict(_argument(text) for text in args.engine_arg or ())
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
    if args.json:
        rows = [
            {"layer": f.layer, "name": f.name, "status": f.status, "said": f.said, "advice": f.advice}
            for f in found["findings"]
        ]
        show_json({"report": str(page), "numbers": str(beside), "findings": rows})
    else:
        for finding in found["findings"]:
            style = style_of(finding.status)
            say(f"{finding.layer}: {finding.name}: {finding.status}: {finding.said}", style=style)
            if finding.advice:
                say(f"    change: {finding.advice}")
        say(f"report: {page}, numbers: {beside}")
    return 1 if any(finding.status == "cause" for finding in found["findings"]) else 0


def _extras() -> None:
    for name, where in (("numpy", "rl"), ("matplotlib", "rl"), ("torch", ""), ("transformers", "")):
        if importlib.util.find_spec(name) is None:
            step = "pip install 'engine-overlay[rl]'" if where else "run it in the environment of your engine"
            raise CannotRun(f"{name} is not installed", step)


def _checked(args: SimpleNamespace, trainer: Any) -> Any:
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
        return key, loads(value)
    except ValueError:
        return key, value


def _prompts(args: SimpleNamespace) -> list[list[int]]:
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
