"""The run behind ``engine-overlay canary``: input checked, server asked, summary shown and written."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine_overlay.canary import INSTALL, questions, report, summary
from engine_overlay.canary.asking import CannotAsk, Server
from engine_overlay.canary.runner import Plan, Progress, Run, run
from engine_overlay.settings import suggest

MOST_AT_ONCE = 1024
INTERRUPTED = "interrupted"


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What the user asks for. ``prompts`` is a file with questions of their own, ``out`` the report to write."""

    url: str
    model: str = ""
    key: str = ""
    requests: int = 3
    parallel: str = "1,8,16,32"
    max_tokens: int = 2048
    timeout: float = 300.0
    temperature: float | None = None
    prompts: Path | None = None
    only: str = ""
    skip: str = ""
    out: Path | None = None


def main(wanted: Wanted, tell: Callable[[dict[str, Any]], None]) -> int:
    """0: nothing found; 1: something found. ``tell`` prints the summary.

    Raises CannotAsk for wrong input, and for a server that cannot be asked; KeyboardInterrupt after it told what there
    was when it was interrupted.
    """
    plan = _plan(wanted)
    if wanted.out is not None and not wanted.out.parent.is_dir():
        raise CannotAsk(f"the folder of {wanted.out} is not there", "make it, or choose another --out")
    taken = Run()
    key = wanted.key or os.environ.get("OPENAI_API_KEY", "")
    more = {} if wanted.temperature is None else {"temperature": wanted.temperature}
    server = Server(
        wanted.url, model=wanted.model, key=key, max_tokens=wanted.max_tokens, seconds=wanted.timeout, **more
    )
    try:
        asyncio.run(_ask(server, plan, taken))
    except KeyboardInterrupt:
        if not taken.asked:
            raise CannotAsk("interrupted before the first answer", "start it again") from None
        taken.stopped = INTERRUPTED
    return _end(wanted, server, taken, tell)


async def _ask(server: Server, plan: Plan, taken: Run) -> None:
    async with server:
        await server.look()
        with _progress() as progress:
            await run(server, plan, taken, progress)


def _end(wanted: Wanted, server: Server, taken: Run, tell: Callable[[dict[str, Any]], None]) -> int:
    data = summary.make(server, taken, _patches())
    tell(data)
    if wanted.out is not None:
        try:
            report.write(data, wanted.out)
        except OSError as error:
            raise CannotAsk(f"cannot write {wanted.out}: {error.strerror}", "choose another --out") from None
        _say(f"report: {wanted.out}")
        if not report.can_draw():
            _say(f"the report has no pictures: matplotlib is not installed; {INSTALL}")
    if taken.stopped == INTERRUPTED:
        raise KeyboardInterrupt
    if data["faulty"]:
        return 1
    if not data["judged"]:
        reasons = [reason for row in data["checks"] for reason in row["reasons"]]
        raise CannotAsk(f"no answer could be judged: {reasons[0] if reasons else 'none came'}", "see the table")
    return 0


def _plan(wanted: Wanted) -> Plan:
    if wanted.requests < 1:
        raise CannotAsk(f"--requests is {wanted.requests}", "give 1 or more")
    if wanted.max_tokens < 1:
        raise CannotAsk(f"--max-tokens is {wanted.max_tokens}", "give 1 or more; 2048 is enough for most models")
    if not wanted.timeout > 0:
        raise CannotAsk(f"--timeout is {wanted.timeout:g}", "give the seconds that one answer may take")
    own: Sequence[questions.Question] = ()
    if wanted.prompts is not None:
        try:
            own = questions.own(wanted.prompts.read_text(encoding="utf-8"), wanted.prompts.name)
        except (OSError, UnicodeDecodeError) as error:
            why = error.strerror if isinstance(error, OSError) else "it is no UTF-8 text"
            raise CannotAsk(f"cannot read {wanted.prompts}: {why}", "give a file with a prompt a line") from None
        except ValueError as error:
            raise CannotAsk(str(error), 'give a prompt a line, or {"messages": [...]} a line') from None
    available = [check for check in questions.CHECKS if check != "own" or own]
    chosen = _names("--only", wanted.only, available) or available
    skipped = _names("--skip", wanted.skip, available)
    checks = [check for check in available if check in chosen and check not in skipped]
    if not checks:
        raise CannotAsk("--only and --skip leave no check", f"the checks are {', '.join(available)}")
    return Plan(checks=checks, requests=wanted.requests, levels=_levels(wanted.parallel), own=own)


def _names(option: str, text: str, available: Sequence[str]) -> list[str]:
    names = [name.strip().lower() for name in text.split(",") if name.strip()]
    for name in names:
        if name == "own" and name not in available:
            raise CannotAsk(f"{option} own has no prompts", "give them with --prompts FILE")
        if name not in available:
            reason = f"{option} {name}: no such check{suggest(name, available)}"
            raise CannotAsk(reason, f"the checks are {', '.join(available)}")
    return names


def _levels(text: str) -> list[int]:
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if not parts or not all(p.isascii() and p.isdigit() and 0 < int(p[:6]) <= MOST_AT_ONCE for p in parts):
        raise CannotAsk(f"--parallel is {text!r}", f"give numbers from 1 to {MOST_AT_ONCE}, such as 1,8,16,32")
    return list(dict.fromkeys(int(part) for part in parts))


def _patches() -> dict[str, Any]:
    from engine_overlay import catalog

    return {name: entry.patch for name, entry in catalog.load(third_party=False).entries.items()}


@contextlib.contextmanager
def _progress() -> Iterator[Progress]:
    """A bar where somebody looks on; else one line for each check, as logs want it."""
    if sys.stderr.isatty():
        with contextlib.suppress(ImportError):
            with _bar() as progress:
                yield progress
            return
    seen: set[str] = set()

    def line(check: str, done: int, total: int, found: int) -> None:
        if check not in seen:
            seen.add(check)
            _say(f"{done} of {total} done, {found} faulty; now {check}: {questions.CHECKS[check]}")

    yield line


@contextlib.contextmanager
def _bar() -> Iterator[Progress]:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        TextColumn("{task.fields[check]:<9}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(),
        TextColumn("[red]{task.fields[faulty]}[/red]"),
    )  # fmt: skip
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=None, check="", faulty="")

        def update(check: str, done: int, total: int, found: int) -> None:
            faulty = f"{found} faulty" if found else ""
            bar.update(task, completed=done, total=total, check=check, faulty=faulty)

        yield update


def _say(text: str) -> None:
    print(f"engine-overlay: canary: {text}", file=sys.stderr)
