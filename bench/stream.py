"""What the overlay costs per streamed token: healthy answers through the live ``Parser.parse_delta``.

    python -m bench.stream [--rounds N] [--json]

Two measurements in one run, each a ratio of CPU time with the overlay to CPU time without it:

- ``apart``: processes with ENGINE_OVERLAY on and off take turns; what a user has, with the machine's noise;
- ``within``: in one process the patches are taken out and put in between repetitions; the finest comparison.

Both take the fastest repetition: on a shared machine all noise makes a repetition slower, never faster.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

TOKENS = 2000
"""Tokens of an answer."""

REPETITIONS = 25
"""Of one answer, in one process and one state."""

ROOT = Path(__file__).resolve().parents[1]

_PROSE = (
    "The weather in Paris is nice today, and the answer to the question is written below. "
    "I should look at the weather first; the answer is (as said) 42, one two three.\n\n"
)
_MARKUP = "Write `a < b` and <b>nice</b> here, or List<int> there; if (x<3) is the answer.\n"
_CALL = (
    "<tool_call>\n<function=get_weather>\n<parameter=city>\nParis\n</parameter>\n"
    "<parameter=days>\n3\n</parameter>\n</function>\n</tool_call>"
)


def answers() -> dict[str, tuple[str, str, str]]:
    """Name to (beginning, what is repeated to fill the answer, end). Every marker is its own token."""
    return {
        "prose": ("I should look.</think>\n\n", _PROSE, ""),
        "reasoning": ("", _PROSE, ""),
        "tool call": ("I should look.</think>\n\n", _PROSE, f"\n\n{_CALL}"),
        "markup": ("I should look.</think>\n\n", _MARKUP, ""),
    }


def measure(rounds: int) -> dict[str, Any]:
    """Run both measurements; returns plain data, times in milliseconds of CPU for one answer."""
    from tests.live import environment, tiny_model

    python = environment.prepare(overlay=True)
    model = environment.cache() / "live-model"
    _run(python, ["-m", tiny_model.__name__, str(model)], "off")
    apart: dict[str, dict[str, list[float]]] = {name: {"off": [], "on": []} for name in answers()}
    for number in range(rounds):
        # Whoever is second finds warmer caches, so they also take turns in being first.
        for mode in ("off", "on") if number % 2 == 0 else ("on", "off"):
            for name, times in _run(python, ["-m", "bench.stream", "--worker", str(model)], mode).items():
                apart[name][mode].append(min(times["as it is"]))
    within = _run(python, ["-m", "bench.stream", "--worker", str(model), "--within"], "on")
    return {
        "tokens": TOKENS,
        "rounds": rounds,
        "apart": {name: _compare(min(t["off"]), min(t["on"])) for name, t in apart.items()},
        "within": {name: _compare(min(t["undone"]), min(t["applied"])) for name, t in within.items()},
    }


def _compare(off: float, on: float) -> dict[str, float]:
    return {"off_ms": round(off * 1e3, 3), "on_ms": round(on * 1e3, 3), "ratio": round(on / off, 4)}


def _run(python: Path, arguments: list[str], mode: str) -> dict[str, Any]:
    from tests.live import environment

    variables = environment.variables() | {"ENGINE_OVERLAY": mode, "ENGINE_OVERLAY_LOG": "quiet"}
    variables |= {"VLLM_LOGGING_LEVEL": "ERROR", "OMP_NUM_THREADS": "1"}
    done = subprocess.run([python, *arguments], cwd=ROOT, env=variables, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"engine-overlay: bench: a worker failed; it says: {done.stderr[-2000:]}")
    last = done.stdout.strip().splitlines()[-1]
    return json.loads(last) if last.startswith("{") else {}


def work(model: str, within: bool) -> dict[str, dict[str, list[float]]]:
    """In the engine's environment: CPU seconds of each repetition, by answer and state."""
    from transformers import AutoTokenizer
    from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
    from vllm.parser.parser_manager import ParserManager

    from tests.live.answers import TOOL

    tokenizer = AutoTokenizer.from_pretrained(model)
    parser_class = ParserManager.get_parser("qwen3_coder", "qwen3", enable_auto_tools=True)
    request = ChatCompletionRequest(
        model="tiny", messages=[{"role": "user", "content": "hello"}], tools=[TOOL], stream=True
    )
    prompt = tokenizer.encode("<|im_start|>assistant\n<think>\n", add_special_tokens=False)

    def once(ids: list[int], texts: list[str]) -> float:
        parser = parser_class(tokenizer, request.tools)
        last = len(ids) - 1
        begin = time.process_time()
        for i, token in enumerate(ids):
            # As the serving code calls it: looked up at each delta, with keywords.
            parser.parse_delta(
                delta_text=texts[i],
                delta_token_ids=[token],
                request=request,
                prompt_token_ids=prompt,
                finished=i == last,
            )
        return time.process_time() - begin

    states: dict[str, Callable[[], None]] = {"as it is": lambda: None}
    if within:
        states = _switches()
    # What the imports made is left out of every collection below; it takes longer than an answer.
    gc.freeze()
    result: dict[str, dict[str, list[float]]] = {}
    for name, parts in answers().items():
        ids = _ids(tokenizer, parts)
        texts = [tokenizer.decode([token]) for token in ids]
        once(ids, texts)
        times: dict[str, list[float]] = {state: [] for state in states}
        for _ in range(REPETITIONS):
            for state, switch in states.items():
                switch()
                gc.collect()
                gc.disable()
                times[state].append(once(ids, texts))
                gc.enable()
        result[name] = times
    return result


def _ids(tokenizer: Any, parts: tuple[str, str, str]) -> list[int]:
    beginning, filler, end = (tokenizer.encode(part, add_special_tokens=False) for part in parts)
    room = TOKENS - len(beginning) - len(end)
    return [*beginning, *(filler * (room // len(filler) + 1))[:room], *end]


def _switches() -> dict[str, Callable[[], None]]:
    from engine_overlay import importer

    ledger = importer.overlay.ledgers["vllm"] if importer.overlay else None
    if ledger is None or not any(ledger.journal.values()):
        raise RuntimeError("engine-overlay: bench: no patch is applied in this process; nothing to compare")
    applied = [i for i, changes in ledger.journal.items() if changes]

    def put_in() -> None:
        for i in applied:
            ledger.redo(i)

    return {"undone": ledger.undo_all, "applied": put_in}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.stream", description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3, help="processes of each kind (default: 3)")
    parser.add_argument("--json", action="store_true", help="print the numbers as JSON")
    parser.add_argument("--worker", metavar="MODEL", help=argparse.SUPPRESS)
    parser.add_argument("--within", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker:
        print(json.dumps(work(args.worker, args.within)))
        return 0
    result = measure(args.rounds)
    if args.json:
        print(json.dumps(result, indent=1))
        return 0
    print(f"CPU time of one answer of {TOKENS} tokens, one a delta; vllm 0.32.0, qwen3 with qwen3_coder")
    for how in ("apart", "within"):
        for name, row in result[how].items():
            print(
                f"{how:7} {name:10} off {row['off_ms']:8.2f} ms   on {row['on_ms']:8.2f} ms   "
                f"ratio {row['ratio']:.3f}"
            )
    return 0


if __name__ == "__main__":
    os.chdir(ROOT)
    sys.exit(main())
