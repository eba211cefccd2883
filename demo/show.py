"""Starts the real server twice, stock and with the overlay, and prints what a client sees of the same stream.

The tiny model says what the script tells it: a thought, ``</think>``, and a tool call, with the markers
spelled in ordinary tokens, as quantised models do it. Everything else is the released engine.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

from tests.live import client, environment, tiny_model
from tests.live.answers import SCRIPTS, Answer, Speller
from tests.live.server import serve

_WIDTH = 100
_SCRIPT = SCRIPTS["tool"]


def main() -> int:
    """0 when the stock engine leaks and the overlay mends it; 1 when anything else happens."""
    python = environment.prepare(overlay=True)
    model = tiny_model.make(environment.cache() / "live-model")
    ids = Speller(model).ids(_SCRIPT.text, "spelled")
    print(f"\nThe model's answer, {len(ids)} ordinary tokens:\n\n<think>\n{_SCRIPT.text}\n")
    seen = []
    for title, variables in (
        ("BEFORE: the stock engine (ENGINE_OVERLAY=off)", {"ENGINE_OVERLAY": "off"}),
        ("AFTER: the same engine, the same command, engine-overlay installed", {}),
    ):
        begin = time.monotonic()
        with serve(python, model, variables={"VLLM_LOGGING_LEVEL": "ERROR", **variables}) as server:
            started = time.monotonic() - begin
            deltas = list(client.deltas(server, ids))
        seen.append(_joined(deltas))
        print(f"{title}; started in {started:.0f} s\n\n{_raw(deltas)}\n\n{_summary(seen[-1])}\n", flush=True)
    before, after = seen
    mended = before != _SCRIPT.answer and after == _SCRIPT.answer
    print("leaks without, mended with the overlay" if mended else "NOT as expected, see above")
    return 0 if mended else 1


def _raw(deltas: list[dict[str, Any]]) -> str:
    """The deltas in the order they came, those of one field behind each other, a bar between two."""
    runs: list[tuple[str, list[str]]] = []
    for delta in deltas:
        for field, text in _texts(delta):
            if not runs or runs[-1][0] != field:
                runs.append((field, []))
            runs[-1][1].append(text)
    lines = []
    for field, texts in runs:
        line = f"  delta.{field:<11}"
        for text in texts:
            if len(line) + len(text) + 1 > _WIDTH:
                lines.append(line)
                line = " " * 19
            line += f"{text}|"
        lines.append(line.removesuffix("|"))
    return "\n".join(lines)


def _texts(delta: dict[str, Any]) -> list[tuple[str, str]]:
    found = [(field, json.dumps(delta[field])[1:-1]) for field in ("reasoning", "content") if field in delta]
    for call in delta.get("tool_calls", ()):
        function = call["function"]
        found += [("tool_calls", function[part]) for part in ("name", "arguments") if function.get(part)]
    return found


def _joined(deltas: list[dict[str, Any]]) -> Answer:
    calls: dict[int, list[str]] = {}
    for call in (call for delta in deltas for call in delta.get("tool_calls", ())):
        name_and_arguments = calls.setdefault(call["index"], ["", ""])
        name_and_arguments[0] += call["function"].get("name") or ""
        name_and_arguments[1] += call["function"].get("arguments") or ""
    return Answer(
        "".join(delta.get("reasoning", "") for delta in deltas),
        "".join(delta.get("content", "") for delta in deltas),
        tuple((name, text) for name, text in calls.values()),
        next((delta["finish_reason"] for delta in deltas if "finish_reason" in delta), None),
    )


def _summary(answer: Answer) -> str:
    calls = ", ".join(f"{name}({arguments})" for name, arguments in answer.calls)
    rows = (
        ("reasoning", json.dumps(answer.reasoning)),
        ("content", json.dumps(answer.content)),
        ("tool_calls", calls or "none"),
        ("finish_reason", answer.finish or "none"),
    )
    return "\n".join(f"  {name:<14} {text}" for name, text in rows)


if __name__ == "__main__":
    sys.exit(main())
