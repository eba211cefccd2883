"""``engine-overlay plan``: the gate's verdicts for the engines that are installed, without importing them."""

from __future__ import annotations

from collections import Counter
from typing import Any

from engine_overlay import catalog, engines, settings, verdict
from engine_overlay.cli import words
from engine_overlay.cli.main import fail
from engine_overlay.cli.options import AsJson, Sources
from engine_overlay.cli.tables import legend, say, show, show_json

EXAMPLES = ("engine-overlay plan", "engine-overlay plan --sources /some/folder --json")
EXITS = {0: "nothing is refused", 1: "a patch is refused", 2: "no engine here, or the call was not understood"}


def command(sources: Sources = None, json: AsJson = False) -> int:
    """Show what would happen to the engine that is installed here. Nothing is changed, and the engine is not imported.

    Each patch gets a verdict from the engine's version and from the bodies of the functions that it touches, under
    the ENGINE_OVERLAY settings of this shell. What is refused is listed first, with the next step.

    JSON: an object with engines (engine, version, distribution, patches by id with verdict, reason, detail; summary,
    patches counted by verdict) and problems (lines).
    """
    found = engines.installed([str(sources)] if sources else None)
    if not found:
        return fail("plan", "no engine is installed here", "install vllm or aphrodite-engine, or give --sources")
    wanted = settings.read()
    known = catalog.load()
    decided = [(engine, verdict.decide(known, engine, wanted)) for engine in found]
    problems = [*wanted.problems, *known.problems, *verdict.unknown_ids(known, wanted)]
    if wanted.mode == "off":
        problems.insert(0, "ENGINE_OVERLAY=off: none of this is applied")
    if json:
        show_json({"engines": [_data(*one) for one in decided], "problems": problems})
    else:
        for i, (engine, verdicts) in enumerate(decided):
            if i:
                say()
            _text(engine, verdicts)
        for line in problems:
            say(f"problem: {line}", style="bold red")
    return 1 if any(v.refused for _, verdicts in decided for v in verdicts.values()) else 0


def _data(engine: engines.Engine, verdicts: dict[str, verdict.Verdict]) -> dict[str, Any]:
    return {
        "engine": engine.name,
        "version": engine.version,
        "distribution": engine.distribution,
        "patches": {i: {"verdict": v.code, "reason": v.reason, "detail": v.detail} for i, v in verdicts.items()},
        "summary": Counter(v.code for v in verdicts.values()),
    }


def _text(engine: engines.Engine, verdicts: dict[str, verdict.Verdict]) -> None:
    rows = sorted(((i, v.code, v.reason) for i, v in verdicts.items()), key=lambda row: words.ordered(row[1]))
    show(rows, ["patch", "verdict", "reason"], words=["verdict"], title=f"{engine.label} in {engine.root}")
    used = dict.fromkeys(row[1] for row in rows)
    legend({word: words.VERDICTS[word] for word in used})
    say(summary(verdicts))
    for i, code, _ in rows:
        if verdicts[i].refused:
            say(f"next, for {i}: {words.next_step(code, i)}")


def summary(verdicts: dict[str, verdict.Verdict]) -> str:
    """How many go in and how many do not, in a line."""
    counts = Counter(v.code for v in verdicts.values())
    refused = sum(v.refused for v in verdicts.values())
    parts = [f"{counts['apply']} would go in"]
    parts += [f"{counts[code]} {code}" for code in ("native", "disabled") if counts[code]]
    return ", ".join([*parts, f"{refused} refused"])
