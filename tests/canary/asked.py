"""One run of the canary against an address, as the command makes it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from engine_overlay.canary.asking import Server
from engine_overlay.canary.questions import CHECKS
from engine_overlay.canary.runner import Plan, Run, run

ALL = [check for check in CHECKS if check != "own"]


def ask(
    url: str,
    checks: Sequence[str] = ALL,
    *,
    requests: int = 1,
    levels: Sequence[int] = (1, 8, 16, 32),
    max_tokens: int = 256,
    seconds: float = 120.0,
) -> tuple[Server, Run]:
    taken = Run()
    server = Server(url, model="", key="", max_tokens=max_tokens, seconds=seconds)

    async def all_of_it() -> None:
        async with server:
            await server.look()
            plan = Plan(checks=checks, requests=requests, levels=levels)
            await run(server, plan, taken, lambda *_: None, seed=1)

    asyncio.run(all_of_it())
    return server, taken


def kinds(taken: Run) -> set[str]:
    return {found.kind for one in taken.asked for found in one.found}


def told(taken: Run) -> list[tuple[str, bool, str, str]]:
    """What was found, to be read in a test's message."""
    return [
        (one.question.name, one.question.streamed, found.kind, f"{found.said}: {found.piece or found.events}")
        for one in taken.asked
        for found in one.found
    ]
