"""``engine-overlay plan``: the gate's verdicts for the engines that are installed, without importing them."""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import replace
from typing import Annotated, Any

import typer

from engine_overlay import catalog, commandline, engines, reach, settings, verdict
from engine_overlay.cli import words
from engine_overlay.cli.main import fail
from engine_overlay.cli.options import AsJson, Sources
from engine_overlay.cli.tables import legend, say, show, show_json
from engine_overlay.verdict import Verdict

EXAMPLES = (
    "engine-overlay plan",
    "engine-overlay plan -- vllm serve MODEL --headless",
    "engine-overlay plan --sources /some/folder --json",
)
EXITS = {
    0: "nothing is refused or bypassed by requests",
    1: "a patch is refused, or requests are answered without those that are to go in",
    2: "no engine here, or the call was not understood",
}


def command(
    server: Annotated[
        list[str] | None, typer.Argument(metavar="[-- COMMAND ...]", help="The command that starts the server.")
    ] = None,
    sources: Sources = None,
    json: AsJson = False,
) -> int:
    """Show what would happen to the engine that is installed here. Nothing is changed, and the engine is not imported.

    Each patch gets a verdict from the engine's version and from the bodies of the functions that it touches, under
    the ENGINE_OVERLAY settings of this shell. What is refused is listed first, with the next step. A patch is out of
    path where the server's requests would not meet it, as its command and the variables of this shell say: with a front
    end that is not Python, on a headless node, in a pooling server.

    JSON: an object with engines (engine, version, distribution, patches by id with verdict, reason, detail, path;
    summary, patches counted by verdict) and problems (lines).
    """
    found = engines.installed([str(sources)] if sources else None)
    if not found:
        return fail("plan", "no engine is installed here", "install vllm or aphrodite-engine, or give --sources")
    try:
        launch = commandline.given(server) if server else None
    except commandline.NotUnderstood as error:
        return fail("plan", str(error), 'write it as "engine-overlay plan -- vllm serve MODEL --flags ..."')
    if launch is not None and launch.engine is not None:
        if launch.engine not in [engine.name for engine in found]:
            return fail("plan", f"{launch.engine} is not installed here", "give the command of an engine that is")
        found = [engine for engine in found if engine.name == launch.engine]
    environ = {**os.environ, **(launch.environ if launch else {})}
    wanted = settings.read(environ)
    known = catalog.load()
    decided = [_Plan(engine, verdict.decide(known, engine, wanted), known, launch, environ) for engine in found]
    problems = [*wanted.problems, *known.problems, *verdict.unknown_ids(known, wanted)]
    if wanted.mode == "off":
        problems.insert(0, "ENGINE_OVERLAY=off: none of this is applied")
    if json:
        show_json({"engines": [one.data() for one in decided], "problems": problems})
    else:
        for i, one in enumerate(decided):
            if i:
                say()
            one.show()
        for line in problems:
            say(f"problem: {line}", style="bold red")
    return 1 if any(one.wrong for one in decided) else 0


class _Plan:
    """What would happen to one engine: verdicts, those of patches that requests would not meet among them."""

    def __init__(
        self,
        engine: engines.Engine,
        verdicts: dict[str, Verdict],
        known: catalog.Catalog,
        launch: commandline.Launch | None,
        environ: dict[str, str],
    ) -> None:
        self.engine = engine
        place = reach.of_server(engine.name, launch, environ, rust=reach.has_rust(engine, environ))
        self.ways = {i: known.entries[i].way(place) for i, v in verdicts.items() if v.code == verdict.APPLY}
        out = {i: way for i, way in self.ways.items() if way.out}
        self.verdicts = verdicts | {
            i: replace(verdicts[i], code=reach.OUT_OF_PATH, reason=way.reason) for i, way in out.items()
        }
        self.bypassed = [way for way in out.values() if way.word == reach.BYPASSED]
        self.steps = list(dict.fromkeys(way.step for way in out.values() if way.step))
        self.strict = settings.read(environ).mode == "strict"

    @property
    def wrong(self) -> bool:
        return bool(self.bypassed) or any(v.refused for v in self.verdicts.values())

    def data(self) -> dict[str, Any]:
        return {
            "engine": self.engine.name,
            "version": self.engine.version,
            "distribution": self.engine.distribution,
            "patches": {
                i: {
                    "verdict": v.code,
                    "reason": v.reason,
                    "detail": v.detail,
                    "path": self.ways[i].word if i in self.ways else "",
                }
                for i, v in self.verdicts.items()
            },
            "summary": Counter(v.code for v in self.verdicts.values()),
        }

    def show(self) -> None:
        rows = sorted(((i, v.code, v.reason) for i, v in self.verdicts.items()), key=lambda row: words.ordered(row[1]))
        title = f"{self.engine.label} in {self.engine.root}"
        show(rows, ["patch", "verdict", "reason"], words=["verdict"], title=title)
        used = dict.fromkeys(row[1] for row in rows)
        legend({word: words.VERDICTS[word] for word in used})
        say(summary(self.verdicts))
        for i, code, _ in rows:
            if self.verdicts[i].refused:
                say(f"next, for {i}: {words.next_step(code, i)}")
        for step in self.steps:
            say(f"next, for what is out of path: {step}")
        if self.bypassed and self.strict:
            say(f"ENGINE_OVERLAY=strict: {self.engine.name} refuses to start so", style="bold red")


def summary(verdicts: dict[str, Verdict]) -> str:
    """How many go in and how many do not, in a line."""
    counts = Counter(v.code for v in verdicts.values())
    refused = sum(v.refused for v in verdicts.values())
    parts = [f"{counts['apply']} would go in"]
    parts += [f"{counts[code]} {code}" for code in (reach.OUT_OF_PATH, "native", "disabled") if counts[code]]
    return ", ".join([*parts, f"{refused} refused"])
