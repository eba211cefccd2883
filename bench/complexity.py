"""How the cost of a hostile text grows with its length: CPU time of 80,000 characters in terms of 20,000.

    python -m bench.complexity [--release vllm-0.33.0] [--formats qwen3 ...] [--places ...] [--kinds ...]
                               [--modes ...] [--size 20000] [--json FILE]

Every text of :mod:`bench.hostile` is repeated to both sizes at every place of an answer, and goes through the parser
that the engine's serving code would use, with the overlay on: token by token, seven tokens a delta, in one delta, and
as a whole answer. 4 is linear, 16 is quadratic. What costs more than 4.4 times is measured again, the fastest of
several, and then with the overlay off. Where the engine as it is is linear, more than 4.4 is a fault and the exit
status is 1; so is an exception that it does not raise. The worst come first. All texts of a format take long: choose
some by ``--places``, ``--kinds`` and ``--modes``.
"""

from __future__ import annotations

import argparse
import gc
import importlib
import inspect
import json
import logging
import re
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from bench import hostile

LINEAR = 4.4
"""Times that four times the text may cost."""

DEFAULT = ("qwen3", "hermes", "deepseek_r1", "kimi_k2", "glm47")
MODES = {"tokens": 1, "sevens": 7, "one": 0, "full": None}
"""Tokens a delta; 0 for one delta, None for a whole answer."""

REPETITIONS = 7
"""Most measurements of what seems to be worse than linear; the fastest of each size counts."""

SLOW = 30.0
"""Seconds of CPU after which a measurement is broken off."""

_STEP = 12
"""A text four times as long is broken off when it costs this many times as much."""

Key = tuple[str, str, str, str]
"""Format, place, kind of text, mode."""


class Slow(BaseException):
    """A measurement takes too long. No exception that parsers catch."""


def measure(label: str, keys: list[Key], size: int) -> list[dict[str, Any]]:
    """What is known of each of ``keys``, the worst first: ``key``, ``on``, and for what is over the limit ``off``."""
    rows: list[dict[str, Any]] = []
    for name in dict.fromkeys(key[0] for key in keys):
        on = _worker(label, [key for key in keys if key[0] == name], size, overlay=True)
        over = [tuple(row["key"]) for row in on if row["ratio"] > LINEAR]
        off = {tuple(row["key"]): row for row in _worker(label, over, size, overlay=False)} if over else {}
        rows += [{"key": row["key"], "on": row, "off": off.get(tuple(row["key"]))} for row in on]
    return sorted(rows, key=lambda row: -row["on"]["ratio"])


def is_fault(row: dict[str, Any]) -> bool:
    """Whether the overlay is worse than linear where the engine is not."""
    return row["off"] is not None and row["on"]["ratio"] > LINEAR >= row["off"]["ratio"]


def _worker(label: str, keys: list[Key], size: int, *, overlay: bool) -> list[dict[str, Any]]:
    from engine_overlay.verify import releases
    from tests.matrix import environment

    with tempfile.TemporaryDirectory() as folder:
        asked, out = Path(folder) / "keys.json", Path(folder) / "rows.json"
        asked.write_text(json.dumps({"keys": keys, "size": size}), encoding="utf-8")
        command = ["-m", "bench.complexity", "--worker", str(asked), str(out)]
        environment.run(command, releases.fetch(releases.named(label)), overlay=overlay, check=True)
        return json.loads(out.read_text(encoding="utf-8"))


def keys_of(formats: list[str], places: list[str], kinds: str, modes: list[str]) -> list[Key]:
    """Everything to be measured; ``kinds`` is a pattern."""
    keys: list[Key] = []
    for name in formats:
        shape = hostile.SHAPES[name]
        for place in places:
            for kind, unit in hostile.texts(shape).items():
                if re.search(kinds, kind) and hostile.answer(shape, place, unit, 1) is not None:
                    keys += [(name, place, kind, mode) for mode in modes]
    return keys


def work(keys: list[Key], size: int) -> list[dict[str, Any]]:
    """In a process with an engine: how the cost of each of ``keys`` grows. Formats it does not have are left out."""
    logging.disable(logging.CRITICAL)
    signal.signal(signal.SIGPROF, _break_off)
    rows, runs, missing = [], {}, set()
    gc.freeze()
    for key in map(tuple, keys):
        name, place, kind, mode = key
        if name in missing:
            continue
        try:
            run = runs[name] = runs.get(name) or Run(hostile.SHAPES[name])
        except KeyError:
            missing.add(name)
            continue
        unit = hostile.texts(run.shape)[kind]
        short, long = (
            run.prepare(hostile.answer(run.shape, place, unit, times * size), MODES[mode]) for times in (1, 4)
        )
        rows.append({"key": key, **growth(short, long)})
    return rows


def growth(short: Callable[[], Callable[[], None]], long: Callable[[], Callable[[], None]]) -> dict[str, Any]:
    """``ratio``, and the ``seconds`` of the longer text; None for one that was broken off. ``error``: what failed."""
    best: list[float] = []
    for _ in range(REPETITIONS):
        try:
            first = _seconds(short(), SLOW)
            limit = max(1.0, _STEP * (min(first, best[0]) if best else first))
            second = _seconds(long(), limit)
        except Slow:
            return {"ratio": float(_STEP), "seconds": None}
        except Exception as error:
            return {"ratio": 1000.0, "seconds": None, "error": f"{type(error).__name__}: {error}"[:200]}
        best = [min(best[0], first), min(best[1], second)] if best else [first, second]
        if best[1] <= LINEAR * best[0]:
            break
    return {"ratio": round(best[1] / best[0], 2), "seconds": round(best[1], 4)}


def _seconds(call: Callable[[], None], limit: float) -> float:
    gc.collect()
    gc.disable()
    # While this timer runs, the clock of the whole process goes in ticks; that of the thread does not.
    signal.setitimer(signal.ITIMER_PROF, limit)
    begin = time.thread_time()
    try:
        call()
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        spent = time.thread_time() - begin
        gc.enable()
    return spent


def _break_off(*_: object) -> None:
    raise Slow


class Run:
    """The parsers of one format in the engine on PYTHONPATH, called as its serving code calls them."""

    def __init__(self, shape: hostile.Shape) -> None:
        """Raises KeyError where the engine does not have them."""
        from engine_overlay import engines

        package = engines.installed()[0].name
        protocol = importlib.import_module(f"{package}.entrypoints.openai.chat_completion.protocol")
        manager = importlib.import_module(f"{package}.parser").ParserManager
        self.shape = shape
        self._class = manager.get_parser(
            reasoning_parser_name=shape.reasoning,
            tool_parser_name=shape.tools,
            enable_auto_tools=bool(shape.tools),
            model_name="model",
        )
        self._request = protocol.ChatCompletionRequest(
            model="model",
            messages=[{"role": "user", "content": "hi"}],
            tools=[{"type": "function", "function": hostile.TOOL}],
            stream=True,
        )
        self._last = "finished" in inspect.signature(self._class.parse_delta).parameters

    def prepare(self, tokens: list[hostile.Token], width: int | None) -> Callable[[], Callable[[], None]]:
        """Makes what parses the answer once, with a new parser."""
        from engine_overlay.verify.tokens import DEFAULT_SPECIAL, CaseTokenizer

        pieces = [token.text.encode() for token in tokens]
        tokenizer = CaseTokenizer(DEFAULT_SPECIAL, self.shape.markers, dict.fromkeys(pieces))
        ids = [tokenizer.id_of(piece) for piece in pieces]
        prompt = [tokenizer.id_of(piece.encode()) for piece in filter(None, ("<|im_start|>", self.shape.start, "\n"))]
        eos = tokenizer.eos_token_id

        def full() -> Callable[[], None]:
            parser = self._class(tokenizer, self._request.tools)
            if hasattr(parser, "set_prompt_token_ids"):
                parser.set_prompt_token_ids(prompt)
            text = "".join(token.text for token in tokens)
            return lambda: parser.parse(
                text, self._request, enable_auto_tools=bool(self.shape.tools), model_output_token_ids=[*ids, eos]
            )

        def stream() -> Callable[[], None]:
            parser = self._class(tokenizer, self._request.tools)
            deltas = list(_deltas(tokens, ids, width or len(tokens)))
            deltas[-1][1].append(eos)
            last = len(deltas) - 1

            def call() -> None:
                for at, (text, some) in enumerate(deltas):
                    more = {"finished": at == last} if self._last else {}
                    parser.parse_delta(
                        delta_text=text, delta_token_ids=some, request=self._request, prompt_token_ids=prompt, **more
                    )

            return call

        return full if width is None else stream


def _deltas(tokens: list[hostile.Token], ids: list[int], width: int) -> Iterator[tuple[str, list[int]]]:
    for at in range(0, len(tokens), width):
        yield "".join(token.text for token in tokens[at : at + width]), ids[at : at + width]


def report(rows: list[dict[str, Any]]) -> Iterator[str]:
    """A line for each row that is over the limit, the worst first, and the worst of the others."""
    over = [row for row in rows if row["on"]["ratio"] > LINEAR]
    for row in over or rows[:5]:
        kind = "" if row["off"] is None else "  FAULT" if is_fault(row) else "  so is the engine"
        yield f"{' / '.join(row['key']):70} on {_said(row['on'])}  off {_said(row['off'])}{kind}"
    worst = max((row["on"]["ratio"] for row in rows if row not in over), default=0)
    faults = sum(map(is_fault, over))
    yield f"{len(rows)} texts, {len(over)} over {LINEAR}, {faults} of them where the engine is linear; next {worst:.2f}"


def _said(found: dict[str, Any] | None) -> str:
    if found is None:
        return f"{'':16}"
    if "error" in found:
        return found["error"]
    more = ">" if found["seconds"] is None else " "
    return f"{more}{found['ratio']:6.2f}" + (f" {found['seconds']:7.3f}s" if found["seconds"] is not None else "")


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.complexity", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--release", default="vllm-0.33.0", help="a pinned release (default: vllm-0.33.0)")
    parser.add_argument("--formats", nargs="+", default=list(DEFAULT), choices=[*hostile.SHAPES, "all"])
    parser.add_argument("--places", nargs="+", default=list(hostile.PLACES), choices=hostile.PLACES)
    parser.add_argument("--kinds", default="", help="only texts whose names this pattern finds")
    parser.add_argument("--modes", nargs="+", default=list(MODES), choices=MODES)
    parser.add_argument("--size", type=int, default=20_000, help="characters of the shorter text (default: 20,000)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all numbers to this file too")
    parser.add_argument("--worker", nargs=2, type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.worker:
        asked, out = options.worker
        given = json.loads(asked.read_text(encoding="utf-8"))
        out.write_text(json.dumps(work(given["keys"], given["size"])), encoding="utf-8")
        return 0
    formats = list(hostile.SHAPES) if "all" in options.formats else options.formats
    rows = measure(options.release, keys_of(formats, options.places, options.kinds, options.modes), options.size)
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1), encoding="utf-8")
    print("\n".join(report(rows)))
    return int(any(map(is_fault, rows)))


if __name__ == "__main__":
    sys.exit(main())
