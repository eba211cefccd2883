"""``/metrics`` says which overlay is in the server, and the state of each patch

Symptom: nothing on the engine's ``/metrics`` tells a monitoring system that the server is patched, by which version of
the overlay, or that a patch was displaced by another tool while the server ran.

Cause: ``get_prometheus_registry`` gives out the collectors of the engine only.

Change: it gives out one more, which is asked at each scrape: ``engine_overlay_info`` (1, with the versions of overlay
and engine as labels) and ``engine_overlay_patch`` for each patch that the gate admitted (1 while it is applied, else
0, with its state as a label, which is ``out of path`` for one that requests of this process do not meet), both read
back from the live objects of the process that answers. All other metrics stay as they are.

Risk: some forty more lines per scrape; with several API servers each scrape speaks of the one that answered it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from engine_overlay.engines import Engine
from engine_overlay.record import Finding, Outcome, Patch, Range, Target

_TARGET = "v1.metrics.prometheus:get_prometheus_registry"

PATCH = Patch(
    id="metrics_gauge",
    engines={"vllm": Range("0.18.0", "0.33.0"), "aphrodite": Range("0.20.0", "0.24.1")},
    targets=(Target(path=_TARGET, bodies=("c0ad00089655",)),),
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
    default_reason="it adds metrics of its own names and changes none",
    scope=("metrics",),
    native_alternative=None,
    remove_when="never: it is about the overlay itself",
)


class Collector:
    """What a scrape asks. It is silent while this patch is not applied, so that undo leaves nothing behind."""

    def __init__(self, metric: type) -> None:
        self._metric = metric

    def collect(self) -> Iterator[Any]:
        from engine_overlay import status

        report = status.report()
        mine = [patch for patch in report["patches"] if patch["id"] == PATCH.id]
        if not any(patch["loaded"] == "applied" for patch in mine):
            return
        info = self._metric(
            "engine_overlay_info", "The overlay that is in this server.", labels=["version", "engine", "engine_version"]
        )
        for engine in report["engines"]:
            info.add_metric([report["overlay"], engine["name"], engine["version"] or ""], 1)
        states = self._metric(
            "engine_overlay_patch", "1 while the patch is applied and requests meet it here.", labels=["patch", "state"]
        )
        for patch in report["patches"]:
            if patch["verdict"] == "apply":
                states.add_metric([patch["id"], patch["state"]], patch["state"] == "applied")
        yield info
        yield states


def build(engine: Engine, originals: Mapping[str, Any]) -> Mapping[str, Any]:
    original = originals[_TARGET]

    def get_prometheus_registry() -> Any:
        from prometheus_client.core import GaugeMetricFamily

        registry = original()
        if not getattr(registry, "_engine_overlay", False):
            registry._engine_overlay = True
            registry.register(Collector(GaugeMetricFamily))
        return registry

    return {_TARGET: get_prometheus_registry}


def probe(engine: Engine) -> Finding:
    """Ask the engine for its registry, and the registry for its metrics."""
    registry = engine.module("v1.metrics.prometheus").get_prometheus_registry()
    names = sorted(metric.name for metric in registry.collect() if metric.name.startswith("engine_overlay"))
    if names:
        return Finding(Outcome.ABSENT, f"a scrape has {', '.join(names)}")
    return Finding(Outcome.PRESENT, "a scrape says nothing of the overlay")
