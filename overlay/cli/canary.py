"""``engine-overlay canary URL``: ask a server as its users do, and tell what is wrong with its answers."""

from __future__ import annotations

import importlib.util
import shutil
import textwrap
from pathlib import Path
from typing import Annotated, Any

import typer

from engine_overlay.canary import INSTALL, questions
from engine_overlay.cli.main import fail
from engine_overlay.cli.options import AsJson
from engine_overlay.cli.tables import fancy, say, show, show_json

EXAMPLES = (
    "engine-overlay canary http://127.0.0.1:8000",
    "engine-overlay canary https://llm.example/v1 --model qwen3 --api-key KEY --requests 10 --out report.html",
    "engine-overlay canary http://127.0.0.1:8000 --only types,stop",
)
EXITS = {0: "nothing was found", 1: "something was found, and was printed", 2: "the server could not be asked"}

_CHECKS = ", ".join(questions.CHECKS)


def command(
    url: Annotated[str, typer.Argument(metavar="URL", help="The address that users have, with /v1 or without.")],
    model: Annotated[
        str, typer.Option(metavar="NAME", help="The model to ask (default: the first of /v1/models).")
    ] = "",
    api_key: Annotated[
        str, typer.Option("--api-key", metavar="KEY", help="The server's key (default: OPENAI_API_KEY).")
    ] = "",
    requests: Annotated[int, typer.Option(metavar="N", help="How often each question is asked.")] = 3,
    parallel: Annotated[
        str, typer.Option(metavar="N,N", help="How many streams at once the check parallel has.")
    ] = "1,8,16,32",
    max_tokens: Annotated[
        int, typer.Option("--max-tokens", metavar="N", help="Tokens of one answer, its thoughts with it.")
    ] = 2048,
    timeout: Annotated[float, typer.Option(metavar="SECONDS", help="What one answer may take.")] = 300.0,
    temperature: Annotated[
        float | None, typer.Option(metavar="T", help="Put into each request (default: the server's own).")
    ] = None,
    prompts: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Your own prompts: one a line, or a JSON object with messages a line."),
    ] = None,
    only: Annotated[str, typer.Option(metavar="CHECKS", help=f"Only these checks, of {_CHECKS}.")] = "",
    skip: Annotated[str, typer.Option(metavar="CHECKS", help="All checks but these.")] = "",
    out: Annotated[Path | None, typer.Option(metavar="FILE", help="Write a report: one HTML file.")] = None,
    json: AsJson = False,
) -> int:
    """Ask an OpenAI-compatible server by the way its users take, and tell what is wrong with its answers.

    Tags that leak, answers that loop or arrive empty, calls that are lost, arguments of a wrong type, streams that
    break: whatever is wrong however the model meant it. What a model may do, such as to decline a call, is "not
    judged". Some 200 short requests; needs the extra "canary".

    JSON: an object with url, model, engine, overlay (whether it is in the server), requests, judged, faulty, seconds,
    stopped (why a run ended early), checks, types, latency (seconds) and findings (kind, title, checks, said, piece,
    events, why, step).
    """
    if importlib.util.find_spec("httpx") is None:
        return fail("canary", "httpx is not installed", INSTALL)
    from engine_overlay.canary.asking import CannotAsk
    from engine_overlay.canary.command import Wanted, main

    wanted = Wanted(
        url=url, model=model, key=api_key, requests=requests, parallel=parallel, max_tokens=max_tokens,
        timeout=timeout, temperature=temperature, prompts=prompts, only=only, skip=skip, out=out,
    )  # fmt: skip
    try:
        return main(wanted, show_json if json else tell)
    except CannotAsk as error:
        return fail("canary", *error.args)


def tell(data: dict[str, Any]) -> None:
    """Print a summary: tables, then each finding with its evidence."""
    from engine_overlay.canary import table

    say(table.headline(data))
    say()
    for one in table.tables(data):
        show(one.rows, one.head, words=one.words, title=one.title)
        say()
    for title, lines in table.findings(data):
        say(title, style="bold red")
        for label, text in lines:
            lead = f"   {label:<6}"
            if not fancy():
                say(lead + text)
                continue
            width = max(40, shutil.get_terminal_size().columns - 1)
            say(textwrap.fill(text, width, initial_indent=lead, subsequent_indent=" " * len(lead)))
        say()
    if data["stopped"]:
        say(f"stopped early: {data['stopped']}", style="bold red")
