"""What a long argument of a tool call costs the server: CPU time of ``Parser.parse_delta``, four characters a token.

    python -m bench.arguments [--release vllm-0.28.0 ...] [--format qwen3 ...] [--json]

For each release and format a string argument of 6,000, 12,000 and 24,000 characters is streamed with the overlay off
and on, in processes that take turns, and one of 100,000 and 200,000 characters with the overlay on. ``ratio`` is off
to on; ``growth`` is what 200,000 characters cost in terms of 100,000: 2 is linear, 4 is quadratic. Above a release
all numbers are seconds, the fastest of the repetitions; without the overlay one is enough, for it takes long.
"""

from __future__ import annotations

import argparse
import inspect
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

RELEASES = ("vllm-0.28.0", "vllm-0.33.0", "aphrodite_engine-0.24.1")
BOTH = (6_000, 12_000, 24_000)
"""Characters that are measured with the overlay off and on."""

LONG = (100_000, 200_000)
"""Characters that are measured with the overlay on only."""

REPETITIONS = 3
BUDGET = 1.0
"""Seconds after which a measurement is not repeated."""

FORMATS = {
    "qwen3": (
        "qwen3",
        "qwen3_coder",
        ["</think>", "<tool_call>", "\n<function=write_file>\n<parameter=content>\n"],
        ["\n</parameter>\n</function>\n", "</tool_call>"],
    ),
    "glm47": (
        "glm45",
        "glm47",
        ["</think>", "<tool_call>", "write_file\n<arg_key>content</arg_key>\n<arg_value>"],
        ["</arg_value>\n", "</tool_call>"],
    ),
    "minimax_m2": (
        "minimax_m2",
        "minimax_m2",
        ["</think>", "<minimax:tool_call>", '\n<invoke name="write_file">\n<parameter name="content">'],
        ["</parameter>\n</invoke>\n", "</minimax:tool_call>"],
    ),
    "deepseek_v4": (
        "deepseek_v4",
        "deepseek_v4",
        [
            "</think>",
            "<｜DSML｜tool_calls>",
            '\n<｜DSML｜invoke name="write_file">\n<｜DSML｜parameter name="content" string="true">',
        ],
        ["</｜DSML｜parameter>\n</｜DSML｜invoke>\n", "</｜DSML｜tool_calls>"],
    ),
}
_LINE = 'if (x < 5 && y > 3) { print("<b>ok</b>"); } // 100%\n'
_TOOL = {
    "name": "write_file",
    "parameters": {"type": "object", "properties": {"content": {"type": "string"}}, "required": ["content"]},
}


def measure(labels: list[str], formats: list[str]) -> dict[str, Any]:
    """Run everything; release -> format -> {"off", "on": {characters: seconds}, "ratio", "growth"}."""
    results: dict[str, Any] = {}
    for label in labels:
        for name in formats:
            off = _worker(label, name, BOTH, overlay=False)
            on = _worker(label, name, (*BOTH, *LONG), overlay=True)
            results.setdefault(label, {})[name] = {
                "off": off,
                "on": on,
                "ratio": {size: off[size] / on[size] for size in off},
                "growth": on[str(LONG[1])] / on[str(LONG[0])],
            }
    return results


def _worker(label: str, name: str, sizes: tuple[int, ...], *, overlay: bool) -> dict[str, float]:
    from engine_overlay.verify import releases
    from tests.matrix import environment

    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "times.json"
        command = ["-m", "bench.arguments", "--worker", str(out), "--format", name, *map(str, sizes)]
        environment.run(command, releases.fetch(releases.named(label)), overlay=overlay, check=True)
        return json.loads(out.read_text(encoding="utf-8"))


def work(name: str, sizes: list[int]) -> dict[int, float]:
    """In a process with an engine: characters -> seconds of CPU for one streamed call."""
    run = Stream(name)
    run.seconds(400)
    times = {}
    for size in sizes:
        times[size] = run.seconds(size)
        for _ in range(REPETITIONS - 1):
            if times[size] < BUDGET:
                times[size] = min(times[size], run.seconds(size))
    return times


class Stream:
    """Streams one call with a long argument through the parser that the engine's serving code would use."""

    def __init__(self, name: str) -> None:
        from engine_overlay.verify.replay import engine_name
        from engine_overlay.verify.serving_code import ServingCode

        self._code = ServingCode(engine_name())
        reasoning, tool, self._head, self._tail = FORMATS[name]
        self._class = self._code._manager.get_parser(
            tool_parser_name=tool, reasoning_parser_name=reasoning, enable_auto_tools=True, model_name="model"
        )

    def seconds(self, size: int) -> float:
        """CPU seconds for an argument of ``size`` characters; raises AssertionError when it does not come through."""
        from engine_overlay.verify.tokens import DEFAULT_SPECIAL, CaseTokenizer

        value = (_LINE * (size // len(_LINE) + 1))[:size].rstrip()
        body = self._head[-1] + value + self._tail[0]
        pieces = [*self._head[:-1], *(body[at : at + 4] for at in range(0, len(body), 4)), self._tail[1]]
        atomic = [*self._head[:-1], self._tail[1]]
        tokenizer = CaseTokenizer(DEFAULT_SPECIAL, atomic, [piece.encode() for piece in pieces])
        request = self._code._request(
            model="model",
            messages=[{"role": "user", "content": "hi"}],
            tools=[{"type": "function", "function": _TOOL}],
        )
        parser = self._class(tokenizer, request.tools, chat_template_kwargs={})
        takes = inspect.signature(parser.parse_delta).parameters
        ids = [tokenizer.id_of(piece.encode()) for piece in pieces]
        arguments = []
        start = time.process_time()
        for at, (piece, token) in enumerate(zip(pieces, ids, strict=True)):
            more = {"finished": at == len(pieces) - 1} if "finished" in takes else {}
            more |= {"prompt_token_ids": []} if "prompt_token_ids" in takes else {}
            delta = parser.parse_delta(piece, [token], request, **more)
            if delta is not None and delta.tool_calls:
                arguments += [call.function.arguments for call in delta.tool_calls if call.function]
        spent = time.process_time() - start
        assert json.loads("".join(filter(None, arguments))) == {"content": value}
        return spent


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.arguments", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--release", action="append", help="a pinned release; default: three")
    parser.add_argument("--format", action="append", choices=FORMATS, help="default: qwen3")
    parser.add_argument("--json", action="store_true", help="print the numbers as JSON")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    parser.add_argument("sizes", nargs="*", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    formats = options.format or ["qwen3"]
    if options.worker:
        Path(options.worker).write_text(json.dumps(work(formats[0], options.sizes)), encoding="utf-8")
        return 0
    results = measure(options.release or list(RELEASES), formats)
    if options.json:
        print(json.dumps(results, indent=1))
        return 0
    for label, by_format in results.items():
        for name, found in by_format.items():
            print(f"{label} {name}")
            for size, on in found["on"].items():
                off = (
                    f"{found['off'][size]:8.3f} s off{found['ratio'][size]:8.1f} times" if size in found["off"] else ""
                )
                print(f"  {int(size):8,} characters {on:8.3f} s on {off}")
            print(f"  200,000 characters cost {found['growth']:.2f} times 100,000")
    return 0


if __name__ == "__main__":
    sys.exit(main())
