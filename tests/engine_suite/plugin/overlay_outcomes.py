"""A pytest plug-in for the engine's own tests: it writes how each one ended, and what the overlay did.

It is loaded with ``-p overlay_outcomes`` in the process that runs the engine's tests, with the overlay on
or off, and writes JSON to ``OVERLAY_OUTCOMES``: ``{"outcomes": {node id: outcome}, "reasons": {node id:
first line of the exception}, "overlay": status report or None, "modules": overlay modules that are
loaded}``.

An outcome is ``passed``, ``skipped``, ``xfailed``, ``xpassed``, or ``failed AssertionError``, ``error in
setup OSError``, ``error in collection OSError``. The type belongs to it: a test that fails for one reason
without the overlay and for another with it does not count as equal.
"""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path
from typing import Any

import pytest

_outcomes: dict[str, str] = {}
_reasons: dict[str, str] = {}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give every test the engine's own mark for tests that leave no GPU state to clean up after them.

    Nothing here touches a device. The clean-up walks all objects of the process, a second or more per test.
    """
    for item in items:
        item.add_marker("skip_global_cleanup")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]):
    """Note how a phase ended; a failure in a later phase replaces a pass, never an earlier failure."""
    report: pytest.TestReport = yield
    expected = hasattr(report, "wasxfail")
    if report.failed:
        place = "failed" if report.when == "call" else f"error in {report.when}"
        _note(item.nodeid, place, call.excinfo)
    elif report.skipped:
        _outcomes.setdefault(item.nodeid, "xfailed" if expected else "skipped")
    elif report.when == "call":
        _outcomes.setdefault(item.nodeid, "xpassed" if expected else "passed")
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector: pytest.Collector):
    """Note a file that cannot be collected."""
    report: pytest.CollectReport = yield
    if report.failed:
        error = getattr(getattr(report, "longrepr", None), "reprcrash", None)
        text = error.message if error else str(report.longrepr).strip().splitlines()[-1]
        found = re.search(r"\b(\w*(?:Error|Exception|Timeout))\b", text)
        _outcomes[collector.nodeid] = f"error in collection {found[1] if found else ''}".strip()
        _reasons[collector.nodeid] = text[:200]
    return report


def _note(node: str, place: str, excinfo: pytest.ExceptionInfo[BaseException] | None) -> None:
    if _outcomes.get(node, "passed") != "passed":
        return
    _outcomes[node] = f"{place} {excinfo.typename}" if excinfo else place
    if excinfo:
        _reasons[node] = str(excinfo.value).strip().partition("\n")[0][:200]


def pytest_sessionfinish() -> None:
    """Write the file. The overlay is asked only when it is loaded: asking would load it."""
    modules = sorted(name for name in sys.modules if name.partition(".")[0] == "engine_overlay")
    overlay: dict[str, Any] | None = None
    if "engine_overlay.importer" in sys.modules:
        from engine_overlay import status

        overlay = status.report()
    data = {"outcomes": _outcomes, "reasons": _reasons, "overlay": overlay, "modules": modules}
    Path(os.environ["OVERLAY_OUTCOMES"]).write_text(json.dumps(data, indent=1), encoding="utf-8")
