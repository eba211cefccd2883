"""``engine-overlay explain ID``: one patch in full, and its verdict for the installed engine."""

from __future__ import annotations

from typing import Any

from engine_overlay import catalog, describe, engines, settings, verdict
from engine_overlay.cli import words
from engine_overlay.cli.main import fail
from engine_overlay.cli.options import AsJson, PatchId, Sources
from engine_overlay.cli.tables import fancy, say, show, show_json, style_of

EXAMPLES = ("engine-overlay explain spelled_markers",)
EXITS = {0: "the patch was explained", 2: "there is no such patch, or the call was not understood"}


def command(id: PatchId, sources: Sources = None, json: AsJson = False) -> int:
    """Explain one patch: the symptom that users see, its cause in the engine, what the patch changes, and its risk.

    Then the releases it is for, the functions it touches, how to switch it on and off, links, and the verdict for
    the engine that is installed here, when there is one. A patch that was retired says why.

    JSON: an object with all of that (id, title, symptom, cause, change, risk, engines, targets, reads, upstream,
    switch_on, switch_off and so on) and here, a list of engine, verdict, reason, next. A retired one has id,
    retired, fixed_in.
    """
    known = catalog.load()
    name = settings.normal_id(id)
    stone = known.tombstones.get(name)
    if stone is not None:
        fixed = ", ".join(f"{engine} {version}" for engine, version in stone.fixed_in.items())
        if json:
            show_json({"id": name, "retired": stone.reason, "fixed_in": dict(stone.fixed_in)})
        else:
            say(f"{name} was retired: {stone.reason} (fixed in {fixed})")
        return 0
    entry = known.entries.get(name)
    if entry is None:
        guess = settings.suggest(name, known.entries)
        return fail("explain", f"there is no patch {name}{guess}", '"engine-overlay list" shows the known ones')
    found = engines.installed([str(sources)] if sources else None)
    if sources and not found:
        return fail("explain", f"{sources} holds no engine", "give the folder in which vllm or aphrodite lies")
    wanted = settings.read()
    here = []
    for engine in found:
        v = verdict.decide(known, engine, wanted)[name]
        step = words.next_step(v.code, name) if v.refused else None
        here.append({"engine": engine.label, "verdict": v.code, "reason": v.reason, "next": step})
    facts = describe.facts(entry)
    if json:
        show_json({**facts, "here": here})
    else:
        _text(facts, here, entry.description)
    return 0


def _text(facts: dict[str, Any], here: list[dict[str, Any]], description: str) -> None:
    say(f"{facts['id']} ({facts['origin']})", style="bold")
    say(f"{facts['title']}.")
    for section in describe.SECTIONS:
        if facts[section]:
            say()
            say(f"{section.capitalize()}: {facts[section]}")
    if not any(facts[section] for section in describe.SECTIONS):
        say(description.partition("\n")[2])
    say()
    for engine in facts["engines"]:
        say(f"{engine}: {describe.lifetime(facts, engine)}")
    for key, what in (("targets", "replaces"), ("reads", "relies on")):
        if facts[key] and fancy():
            show([[target["path"]] for target in facts[key]], [what])
        elif facts[key]:
            say(f"{what}: {', '.join(target['path'] for target in facts[key])}")
    state = "on" if facts["default"] else "off"
    say(f"relationship: {facts['relationship']}; {state} by default: {facts['default_reason']}")
    say(f"runs in: {', '.join(facts['scope'])}")
    for key in ("group", "requires", "conflicts", "after"):
        if facts[key]:
            said = facts[key] if isinstance(facts[key], str) else ", ".join(facts[key])
            say(f"{'lies over' if key == 'after' else key}: {said}")
    if facts["native_alternative"]:
        say(f"the engine's own switch: {facts['native_alternative']}")
    if facts["switch_on"]:
        say(f"to switch it on: {' or '.join(facts['switch_on'])}")
    say(f"to switch it off: {facts['switch_off']}")
    say(f"remove when: {facts['remove_when']}")
    for link in facts["upstream"]:
        say(f"upstream: {link}")
    if facts["file"]:
        say(f"in the repository: {facts['file']}, {facts['test']}, {facts['page']}")
    for row in here:
        say(f"here, {row['engine']}: {row['verdict']}: {row['reason']}", style=style_of(row["verdict"]))
        if row["next"]:
            say(f"next: {row['next']}")
    if not here:
        say("here: no engine is installed")
