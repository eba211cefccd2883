"""The engine's environment report, which bug reports are made of, says that the overlay is in

Symptom: ``vllm collect-env`` prints versions of everything but the overlay, so that a bug report about a patched engine
looks like one about the stock engine, and its maintainers are misled.

Cause: ``get_pretty_env_info`` knows nothing of the overlay.

Change: its text ends with a section of the overlay: version, way in, and the patches that the gate admitted. The rest
of the text stays as it is.

Risk: none known. ``python -m vllm.collect_env`` runs the module as ``__main__``, where nothing can be patched;
``engine-overlay status`` and ``plan`` print the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from engine_overlay.engines import Engine
from engine_overlay.record import Finding, Outcome, Patch, Range, Target

_TARGET = "collect_env:get_pretty_env_info"
_HEAD = "engine-overlay"

PATCH = Patch(
    id="bug_report_line",
    engines={"vllm": Range("0.18.0", "0.33.0"), "aphrodite": Range("0.20.0", "0.24.1")},
    targets=(Target(path=_TARGET, bodies=("21374c92346e",)),),
    reads=(),
    upstream=(),
    relationship="different approach",
    introduced_in={"vllm": "0.18.0", "aphrodite": "0.20.0"},
    fixed_in={"vllm": None, "aphrodite": None},
    superseded_by=None,
    group=None,
    requires=(),
    conflicts=(),
    after=(),
    default=True,
    default_reason="it adds lines to a report that people read",
    scope=("command",),
    native_alternative=None,
    remove_when="never: it is about the overlay itself",
)


def section() -> str:
    """The lines about the overlay in this process."""
    from engine_overlay import status

    report = status.report()
    going = [patch["id"] for patch in report["patches"] if patch["verdict"] == "apply"]
    lines = [
        "==============================",
        f"        {_HEAD}",
        "==============================",
        f"engine-overlay version       : {report['overlay']} (way in: {report['way']})",
        f"Patches of this engine       : {', '.join(going) or 'none'}",
        "Please try ENGINE_OVERLAY=off before reporting a bug to the engine's maintainers.",
    ]
    return "\n".join(lines)


def build(engine: Engine, originals: Mapping[str, Any]) -> Mapping[str, Any]:
    original = originals[_TARGET]

    def get_pretty_env_info() -> str:
        return f"{original()}\n\n{section()}"

    return {_TARGET: get_pretty_env_info}


def probe(engine: Engine) -> Finding:
    """Make the report of nothing: the engine's own questions to the machine take seconds and say nothing here."""
    module = engine.module("collect_env")
    asked = module.get_env_info, module.pretty_str
    module.get_env_info, module.pretty_str = (lambda: None), (lambda info: "")
    try:
        text = module.get_pretty_env_info()
    finally:
        module.get_env_info, module.pretty_str = asked
    last = text.strip().splitlines()[-1] if text.strip() else ""
    if _HEAD in text:
        return Finding(Outcome.ABSENT, f"the report names the overlay: {last}")
    return Finding(Outcome.PRESENT, "the report does not name the overlay")
