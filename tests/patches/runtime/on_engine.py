"""What becomes of the values that a user gives and does not give, in every way to start a release.

    python -m tests.patches.runtime.on_engine MODEL FILE

Runs in a process of one release that was started with ``ENGINE_OVERLAY_PROFILE=rl``, and writes what it saw as JSON;
test_rl_profile judges it. Arguments, parsers and configs are the release's own; it is stopped where an engine would
be made of the finished config. "on" is asked first, then every patch is undone for "off".
"""

from __future__ import annotations

import contextlib
import io
import json
import logging
import runpy
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

GIVEN: dict[str, dict[str, Any]] = {
    "nothing": {},
    "logprobs": {"logprobs_mode": "raw_logprobs"},
    "logits": {"logprobs_mode": "processed_logits"},
    "prefixes": {"enable_prefix_caching": True},
    "async": {"async_scheduling": True},
    "cascade": {"disable_cascade_attn": False},
    "head": {"hf_overrides": {"head_dtype": "model"}},
    "other override": {"hf_overrides": {"initializer_range": 0.5}},
    "all": {
        "logprobs_mode": "raw_logprobs",
        "enable_prefix_caching": True,
        "async_scheduling": True,
        "disable_cascade_attn": False,
        "hf_overrides": {"head_dtype": "bfloat16"},
    },
    "as the profile": {
        "logprobs_mode": "processed_logprobs",
        "enable_prefix_caching": False,
        "async_scheduling": False,
        "disable_cascade_attn": True,
        "hf_overrides": {"head_dtype": "float32"},
    },
}
"""What the user writes, by name of the case, as keyword arguments."""

_BASE = {"dtype": "bfloat16", "max_model_len": 256, "max_num_seqs": 4}


class Stopped(Exception):
    """Carries what the engine would have been made of."""

    def __init__(self, what: Any) -> None:
        self.what = what


def flags(given: dict[str, Any]) -> list[str]:
    """The same values on a command line."""
    words = []
    for name, value in given.items():
        option = name.replace("_", "-")
        if isinstance(value, bool):
            words.append(f"--{option}" if value else f"--no-{option}")
        else:
            words += [f"--{option}", json.dumps(value) if isinstance(value, dict) else str(value)]
    return words


def yaml(given: dict[str, Any]) -> str:
    """The same values in a config file."""
    lines = []
    for name, value in given.items():
        option = name.replace("_", "-")
        if value is False:
            lines.append(f"no-{option}: true")
        else:
            lines.append(f"{option}: " + (f"'{json.dumps(value)}'" if isinstance(value, dict) else json.dumps(value)))
    return "\n".join(lines) + "\n"


class Ways:
    """Each way to start the release, up to the engine arguments that come of it."""

    def __init__(self, engine: Any, model: str) -> None:
        self.engine, self.model = engine, model
        self.arguments = engine.module("engine.arg_utils")

    def all(self) -> Iterator[tuple[str, Any]]:
        yield "EngineArgs", lambda given: self.arguments.EngineArgs(model=self.model, **_BASE, **given)
        yield "AsyncEngineArgs", lambda given: self.arguments.AsyncEngineArgs(model=self.model, **_BASE, **given)
        yield "a later dataclass", lambda given: later(self.arguments)(model=self.model, **_BASE, **given)
        yield "LLM", self.offline
        yield "serve", lambda given: self.command(["serve", self.model, *flags(_BASE), *flags(given)])
        yield "serve --config", lambda given: self.with_file(["serve", self.model, *flags(_BASE)], given)
        if self.engine.name == "aphrodite":
            yield "run", lambda given: self.command(["run", self.model, *flags(_BASE), *flags(given)])
        yield "api_server", lambda given: self.module(["--model", self.model, *flags(_BASE), *flags(given)])

    def offline(self, given: dict[str, Any]) -> Any:
        """``LLM(...)``, up to its engine."""

        def stop(*args: Any, **kwargs: Any) -> None:
            raise Stopped(kwargs.get("engine_args", args[0] if args else None))

        engine_class = self.engine.module("v1.engine.llm_engine").LLMEngine
        with mock.patch.object(engine_class, "from_engine_args", stop):
            try:
                self.engine.module("entrypoints.llm").LLM(self.model, **_BASE, **given)
            except Stopped as stopped:
                return stopped.what
        raise AssertionError("LLM() made no engine arguments")

    def command(self, words: list[str]) -> Any:
        """``vllm`` or ``aphrodite`` with these words, up to the event loop of its server."""
        return self._served([self.engine.name, *words], self.engine.module("entrypoints.cli.main").main)

    def with_file(self, words: list[str], given: dict[str, Any]) -> Any:
        with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
            file.write(yaml(given) if given else "seed: 0\n")
            file.flush()
            return self.command([*words, "--config", file.name])

    def module(self, words: list[str]) -> Any:
        """``python -m <engine>.entrypoints.openai.api_server``, up to its event loop."""
        name = f"{self.engine.name}.entrypoints.openai.api_server"
        return self._served([name, *words], lambda: runpy.run_module(name, run_name="__main__"))

    def _served(self, argv: list[str], start: Any) -> Any:
        def stop(coroutine: Any, *args: Any, **kwargs: Any) -> None:
            found = coroutine.cr_frame.f_locals["args"]
            coroutine.close()
            raise Stopped(found)

        with mock.patch.object(sys, "argv", argv), mock.patch("uvloop.run", stop):
            try:
                start()
            except Stopped as stopped:
                return self.arguments.AsyncEngineArgs.from_cli_args(stopped.what)
        raise AssertionError(f"{' '.join(argv)} served nothing")


def later(arguments: Any) -> type:
    """A subclass with a field of its own, as trainers make them."""
    import dataclasses

    return dataclasses.make_dataclass("Later", [("more", int, 0)], bases=(arguments.AsyncEngineArgs,))


def seen(engine: Any, args: Any) -> dict[str, Any]:
    """The values of the config that the release makes of the arguments, and what is told of them."""
    from engine_overlay import profile
    from engine_overlay.log import logger
    from engine_overlay.patches.runtime import effective_values

    # As in a process that makes its first config.
    profile._noted.clear()
    lines = Lines()
    logger.addHandler(lines)
    config = args.create_engine_config()
    engine.module("v1.executor.abstract").Executor.get_class(config)
    logger.removeHandler(lines)
    model = config.model_config
    return {
        "logprobs_mode": model.logprobs_mode,
        "enable_prefix_caching": config.cache_config.enable_prefix_caching,
        # The CPU platform switches these two off for good; the argument is what other platforms are told.
        "async_scheduling": args.async_scheduling,
        "async_scheduling, effective": config.scheduler_config.async_scheduling,
        "disable_cascade_attn": args.disable_cascade_attn,
        "disable_cascade_attn, effective": model.disable_cascade_attn,
        "head_dtype": str(getattr(model.hf_config, "head_dtype", None)),
        "initializer_range": model.hf_config.initializer_range,
        "values": effective_values.values(engine, config),
        "noted": profile.noted().get(engine.name),
        "lines": lines.seen,
    }


class Lines(logging.Handler):
    """Keeps (level, line) of what the overlay says."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[str, str]] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.seen.append((record.levelname, record.getMessage()))


def main(model: str, out: str) -> None:
    from engine_overlay import engines, importer

    engine = engines.installed()[0]
    engine.module("v1.executor.abstract")
    engine.module("engine.arg_utils")
    ledger = importer.overlay.ledgers[engine.name]
    found: dict[str, Any] = {"problems": importer.overlay.problems, "states": {}}
    found["states"] = {i: [v.code, ledger.state(i)[0]] for i, v in ledger.verdicts.items()}
    for side in ("on", "off"):
        if side == "off":
            found["left"] = ledger.undo_all()
        found[side] = {}
        for way, start in Ways(engine, model).all():
            cases = GIVEN if side == "on" else {name: GIVEN[name] for name in ("nothing", "all")}
            for name, given in cases.items():
                with contextlib.redirect_stdout(io.StringIO()):
                    found[side][f"{way}: {name}"] = seen(engine, start(given))
    Path(out).write_text(json.dumps(found, indent=1, default=str), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
