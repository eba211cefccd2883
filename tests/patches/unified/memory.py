"""What answers leave behind until the cycle collector comes: objects for each answer, through the chat serving code.

    python -m tests.patches.unified.memory OUT

Runs in a process of one release. OUT gets, for one public case of each pair of parsers, the objects that an answer
leaves: of a whole stream, of one that the client leaves in its middle, and of a message.
"""

from __future__ import annotations

import asyncio
import gc
import inspect
import json
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from engine_overlay import engines
from engine_overlay.verify import cases, serving_code

ANSWERS = 40


async def left(call: Callable[[], Awaitable[None]]) -> float:
    """Objects that each ``call`` leaves with the collector off."""
    for _ in range(3):
        await call()
    await asyncio.sleep(0.01)
    gc.collect()
    before = len(gc.get_objects())
    for _ in range(ANSWERS):
        await call()
    # What was left in its middle is closed by the event loop.
    for _ in range(10):
        await asyncio.sleep(0)
    after = len(gc.get_objects())
    return (after - before) / ANSWERS


async def measure(code: serving_code.ServingCode, case: cases.Case) -> dict[str, float]:
    """What the answers of one case leave. The serving object is made once, as a server makes it."""
    run = serving_code._Run(code, case)
    stream = run.serving.chat_completion_stream_generator
    parameters = inspect.signature(stream).parameters
    groups = cases.cuts(case)["1"]

    def arguments(outputs: Any) -> dict[str, Any]:
        return run.common(outputs)

    def streamed() -> Any:
        given = arguments(serving_code._deltas(run, groups))
        if "reasoning_parser" in parameters:
            given["reasoning_parser"] = run.reasoning_parser()
        if "chat_template_kwargs" in parameters:
            given["chat_template_kwargs"] = run.template_fields
        return stream(**given)

    async def whole_stream() -> None:
        async for _ in streamed():
            pass

    async def aborted() -> None:
        outputs, count = streamed(), 0
        async for _ in outputs:
            count += 1
            if count == 5:
                break
        await outputs.aclose()

    async def message() -> None:
        text = cases.full_text(case)
        given = arguments(serving_code._one(run.output(text, run.ids, run.finish_reason)))
        if code._takes_parser:
            given["parser"] = run.parser()
        else:
            given["reasoning_parser"] = run.reasoning_parser()
        await run.serving.chat_completion_full_generator(**given)

    return {call.__name__: await left(call) for call in (whole_stream, aborted, message)}


def main(out: str) -> None:
    code = serving_code.ServingCode(engines.installed()[0].name)
    found: dict[str, Any] = {}
    gc.disable()
    for case in cases.load():
        pair = f"{case['reasoning_parser']} {case['tool_parser']}"
        if pair in found:
            continue
        try:
            found[pair] = asyncio.run(measure(code, case))
        except (KeyError, TypeError) as error:
            # This release does not have these parsers.
            found[pair] = str(error)
    Path(out).write_text(json.dumps(found), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1])
