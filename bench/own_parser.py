"""The own parser on a release without a parser engine, beside the parser engine of vllm 0.33.0 as it is.

    python -m bench.own_parser [--rounds N] [--release vllm-0.23.0] [--json]

Both get the same tokens of the same healthy answers through ``Parser.parse_delta``, as their serving code calls it, in
processes that take turns in one run. Per answer: the fastest repetition of each in microseconds of CPU a token, and
``ratio``, own to engine. The last answer has an argument of 20,000 characters.
"""

from __future__ import annotations

import argparse
import gc
import inspect
import json
import re
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ENGINE = "vllm-0.33.0"
TOKENS = 2000
REPETITIONS = 7
SIZE = 4
"""Characters of a token that is no marker."""

MARKERS = ("<think>", "</think>", "<tool_call>", "</tool_call>")
_PROSE = (
    "The weather in Paris is nice today, and the answer to the question is written below. "
    "I should look at the weather first; the answer is (as said) 42, one two three.\n\n"
)
_MARKUP = "Write `a < b` and <b>nice</b> here, or List<int> there; if (x<3) is the answer.\n"
_CALL = (
    "\n\n<tool_call>\n<function=get_weather>\n<parameter=city>\nParis\n</parameter>\n"
    "<parameter=days>\n3\n</parameter>\n</function>\n</tool_call>"
)
_LONG = (
    "<tool_call>\n<function=write_file>\n<parameter=content>\n",
    "\n</parameter>\n</function>\n</tool_call>",
)
TOOLS = [
    {"name": "get_weather", "parameters": {"properties": {"city": {"type": "string"}, "days": {"type": "integer"}}}},
    {"name": "write_file", "parameters": {"properties": {"content": {"type": "string"}}}},
]


def answers() -> dict[str, list[str]]:
    """Name -> the answer in tokens."""
    begin = "I should look.</think>\n\n"
    long = (_PROSE * (20_000 // len(_PROSE) + 1))[:20_000]
    return {
        "prose": _filled(begin, _PROSE, ""),
        "reasoning": _filled("", _PROSE, ""),
        "tool call": _filled(begin, _PROSE, _CALL),
        "markup": _filled(begin, _MARKUP, ""),
        "argument of 20,000": [*_tokens(begin + _LONG[0]), *_tokens(long), *_tokens(_LONG[1])],
    }


def _filled(*parts: str) -> list[str]:
    begin, filler, end = map(_tokens, parts)
    room = TOKENS - len(begin) - len(end)
    return [*begin, *(filler * (room // len(filler) + 1))[:room], *end]


def _tokens(text: str) -> list[str]:
    tokens: list[str] = []
    for part in re.split(f"({'|'.join(MARKERS)})", text):
        whole = part in MARKERS
        tokens += [part] if whole else [part[at : at + SIZE] for at in range(0, len(part), SIZE)]
    return tokens


def measure(rounds: int, release: str) -> dict[str, Any]:
    """{answer: {"own_us", "engine_us", "ratio"}}, microseconds of CPU a token."""
    best: dict[str, dict[str, float]] = {}
    for number in range(rounds):
        sides = [("own", release), ("engine", ENGINE)]
        for side, label in sides if number % 2 == 0 else reversed(sides):
            for name, times in _run(label, overlay=side == "own").items():
                kept = best.setdefault(name, {})
                kept[side] = min(times, kept.get(side, times))
    return {
        name: {
            "own_us": round(times["own"], 2),
            "engine_us": round(times["engine"], 2),
            "ratio": round(times["own"] / times["engine"], 3),
        }
        for name, times in best.items()
    }


def _run(label: str, *, overlay: bool) -> dict[str, float]:
    from engine_overlay.verify import releases
    from tests.matrix import environment

    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "times.json"
        command = ["-m", "bench.own_parser", "--worker", str(out)]
        environment.run(command, releases.fetch(releases.named(label)), overlay=overlay, check=True)
        return json.loads(out.read_text(encoding="utf-8"))


def work() -> dict[str, float]:
    """In the process of a release: microseconds of CPU a token for each answer, the fastest repetition."""
    from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
    from vllm.parser import ParserManager

    from engine_overlay.verify.tokens import DEFAULT_SPECIAL, CaseTokenizer

    parser_class = ParserManager.get_parser("qwen3_coder", "qwen3", enable_auto_tools=True)
    request = ChatCompletionRequest(
        model="m",
        messages=[{"role": "user", "content": "hello"}],
        tools=[{"type": "function", "function": tool} for tool in TOOLS],
        stream=True,
    )
    says_last = "finished" in inspect.signature(parser_class.parse_delta).parameters
    result = {}
    gc.freeze()
    for name, texts in answers().items():
        tokenizer = CaseTokenizer(DEFAULT_SPECIAL, MARKERS, [text.encode() for text in texts])
        ids = [tokenizer.id_of(text.encode()) for text in texts]
        times = []
        for _ in range(REPETITIONS + 1):
            parser = parser_class(tokenizer, request.tools)
            last = len(ids) - 1
            gc.collect()
            gc.disable()
            begin = time.process_time()
            for i, token in enumerate(ids):
                more = {"finished": i == last} if says_last else {}
                parser.parse_delta(
                    delta_text=texts[i], delta_token_ids=[token], request=request, prompt_token_ids=[1], **more
                )
            times.append(time.process_time() - begin)
            gc.enable()
        result[name] = min(times) / len(ids) * 1e6
    return result


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.own_parser", description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--release", default="vllm-0.23.0", help="the release on which the own parser runs")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--worker", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.worker:
        options.worker.write_text(json.dumps(work()), encoding="utf-8")
        return 0
    result = measure(options.rounds, options.release)
    if options.json:
        print(json.dumps(result, indent=1))
        return 0
    print(f"{'answer':20} {'own us/token':>14} {'engine us/token':>16} {'ratio':>7}")
    for name, row in result.items():
        print(f"{name:20} {row['own_us']:14.2f} {row['engine_us']:16.2f} {row['ratio']:7.3f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
