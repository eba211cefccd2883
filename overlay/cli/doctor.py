"""``engine-overlay doctor``: what is wrong with this installation and this server, and a proof of each patch."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any

import typer

from engine_overlay.cli.main import fail
from engine_overlay.cli.options import AsJson, OnlyEngine
from engine_overlay.cli.tables import say, show, show_json
from engine_overlay.doctor import child, examine, launch, model
from engine_overlay.doctor.finding import LEVELS, Finding

EXAMPLES = (
    "engine-overlay doctor",
    'engine-overlay doctor --flags "vllm serve Qwen/Qwen3-8B"',
    "engine-overlay doctor --json -- aphrodite run /models/mine",
)
EXITS = {
    0: "no problem was found, and every patch that goes in is proven",
    1: "there is a problem, or a patch is refused or not proven",
    2: "no engine here, or the call was not understood",
}

_COLOURS = {"problem": "bold red", "note": "yellow", "ok": "green"}


def command(
    server: Annotated[
        list[str] | None, typer.Argument(metavar="[-- COMMAND ...]", help="The command that starts the server.")
    ] = None,
    flags: Annotated[str | None, typer.Option("--flags", help="The same in one text, as in a script.")] = None,
    pid: Annotated[int | None, typer.Option("--pid", help="The running server with this process id.")] = None,
    model_: Annotated[
        str | None,
        typer.Option("--model", metavar="DIR_OR_ID", help="The model, where it is not the one in the flags."),
    ] = None,
    rl: Annotated[bool, typer.Option("--rl", help="Compare with what training needs, profile or not.")] = False,
    probes: Annotated[bool, typer.Option("--probes/--no-probes", help="Prove each patch, or leave that out.")] = True,
    seconds: Annotated[
        float, typer.Option("--seconds", min=1, help="How long a process that asks the engine may take.")
    ] = child.SECONDS,
    engine: OnlyEngine = None,
    json: AsJson = False,
) -> int:
    """Look at the engine, the flags of its server, the model's tokenizer and parsers, thinking budgets and other tools.

    The flags are those of the server that runs here, unless they are given. Nothing is downloaded or changed, and
    what imports the engine runs in processes of its own. Then each patch is proven: the smallest reproduction of its
    fault, on the engine's real classes, must show the fault without the patch, not with it, and again after undo.

    JSON: an object with server (source, engine, words, model folder), findings (subject, level, what, why, fix;
    problems first) and probes (engine, id, verdict, reason, without, with, after_undo, judgement).
    """
    if sum(bool(given) for given in (server, flags, pid)) > 1:
        return fail("doctor", "COMMAND, --flags and --pid each name the server", "give one of them")
    try:
        chosen = _launches(server, flags, pid)
        if model_ is not None:
            # A folder that the user names himself must be there; one in the flags is a finding.
            model.find(model_)
    except launch.NotUnderstood as error:
        return fail("doctor", str(error), 'write it as "vllm serve MODEL --flags ..."')
    except model.NotHere as error:
        return fail("doctor", f"--model: {error}", "give the model's folder")
    if pid is not None and not chosen:
        step = '"engine-overlay doctor" finds those that it can read'
        return fail("doctor", f"--pid {pid}: no server of an engine has it", step)
    only = engine.value if engine else None
    reports = []
    for i, one in enumerate(chosen or [None]):
        try:
            # The patches are the same for each server of this environment.
            reports.append(
                examine.examine(one, model=model_, want_rl=rl, want_probes=probes and not i, only=only, seconds=seconds)
            )
        except LookupError as error:
            return fail("doctor", str(error), "install vllm or aphrodite-engine first")
    if json:
        data = [_data(report) for report in reports]
        show_json(data[0] if len(data) == 1 else {**data[0], "more_servers": data[1:]})
    else:
        for report in reports:
            _text(report)
    return 1 if any(report.wrong for report in reports) else 0


def _launches(server: list[str] | None, flags: str | None, pid: int | None) -> list[launch.Launch]:
    if flags is not None:
        return [launch.given(launch.split(flags))]
    if server:
        return [launch.given(server)]
    return launch.running(pid)


def _data(report: examine.Report) -> dict[str, Any]:
    found = report.launch
    return {
        "server": found
        and {
            "source": found.source,
            "engine": found.engine,
            "words": list(found.words),
            "model": str(report.model.folder) if report.model else None,
        },
        "findings": [asdict(finding) for finding in report.findings],
        "probes": report.probes,
    }


def _text(report: examine.Report) -> None:
    for finding in report.findings:
        _say(finding)
    counts = {level: sum(f.level == level for f in report.findings) for level in LEVELS}
    say(f"\nproblems: {counts['problem']}, notes: {counts['note']}, well: {counts['ok']}")
    if not report.probes:
        return
    say()
    rows = []
    for row in report.probes:
        after = (row["after_undo"] or ["-"])[0]
        rows.append([row["engine"], row["id"], row["without"][0], row["with"][0], after, row["judgement"]])
    outcomes = ["without", "with", "after undo"]
    show(rows, ["engine", "patch", *outcomes, "judgement"], words=[*outcomes, "judgement"])
    proven = sum(row["judgement"] == "proven" for row in report.probes)
    unproven = sum(row["judgement"].startswith("NOT") for row in report.probes)
    rest = len(report.probes) - proven - unproven
    say(f"{proven} proven, {unproven} not as they should be, {rest} not needed here or left out")


def _say(finding: Finding) -> None:
    say(f"{finding.level}: {finding.subject}: {finding.what}", style=_COLOURS[finding.level])
    if finding.why:
        say(f"    why: {finding.why}")
    if finding.fix:
        say(f"    fix: {finding.fix}")
