"""What the engine on PYTHONPATH says of the overlay: on /metrics, and in the report that bug reports are made of.

    python -m tests.patches.runtime.said

Prints JSON: the scraped metrics of the overlay and the report's lines about it, with the patches in, undone, and in
again.
"""

from __future__ import annotations

import json
import logging
from typing import Any

from prometheus_client import generate_latest

from engine_overlay import commit
from engine_overlay.verify.replay import engine_name


def said() -> dict[str, Any]:
    import importlib

    name = engine_name()
    # As the server has it: under the name that its own module took.
    metrics = importlib.import_module(f"{name}.entrypoints.serve.instrumentator.metrics")
    report = importlib.import_module(f"{name}.collect_env")
    text = generate_latest(metrics.get_prometheus_registry()).decode()
    asked, report.get_env_info = report.get_env_info, lambda: None
    shown, report.pretty_str = report.pretty_str, lambda info: "the engine's own text"
    try:
        lines = report.get_pretty_env_info().splitlines()
    finally:
        report.get_env_info, report.pretty_str = asked, shown
    return {
        "metrics": [line for line in text.splitlines() if line.startswith("engine_overlay")],
        "others": sum(not line.startswith(("engine_overlay", "#")) for line in text.splitlines()),
        "report": lines,
    }


def main() -> None:
    logging.disable(logging.CRITICAL)
    result = {"on": said()}
    for patch in ("metrics_gauge", "bug_report_line"):
        commit.undo(patch)
    result["undone"] = said()
    for patch in ("metrics_gauge", "bug_report_line"):
        commit.redo(patch)
    result["redone"] = said()
    print(json.dumps(result))


if __name__ == "__main__":
    main()
