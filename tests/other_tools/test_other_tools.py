"""Beside other tools, in each order of installation: the answers that the overlay gives alone, and stock after undo."""

from __future__ import annotations

import json
import os
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from engine_overlay.verify import releases
from tests.matrix import store
from tests.matrix.environment import ROOT, variables
from tests.other_tools import environment
from tests.other_tools.one import ORDERS
from tests.other_tools.tools import COMMANDS

RELEASE = "vllm-0.33.0"
EVERY = int(os.environ.get("OVERLAY_EVERY_CASE", "8"))
"""Each eighth public case; 1 (``OVERLAY_EVERY_CASE=1``, as ``make test-all`` has it) for all of them."""

BESIDE = [(order, tool) for order, tools in ORDERS.items() if order != "alone" for tool in tools]

LATE_WRAPPER = ("late", "wrapt")
"""A wrapper of unknown intent was there first: nothing goes over it, and what is said names it."""

NEEDS_THE_REFUSED = {"078-r1-frag-think-end", "117-stop-holdback-r1-hermes"}
"""Cases of what the patches mend that are refused then; they are no worse than on the stock engine."""

QUIET = {
    "DD_INSTRUMENTATION_TELEMETRY_ENABLED": "false",
    "DD_REMOTE_CONFIGURATION_ENABLED": "false",
    "DD_TRACE_AGENT_URL": "unix:///dev/null",
    "DD_CRASHTRACKING_ENABLED": "false",
    "OTEL_SDK_DISABLED": "false",
    "OTEL_TRACES_EXPORTER": "none",
    "OTEL_METRICS_EXPORTER": "none",
    "OTEL_LOGS_EXPORTER": "none",
}
"""Nothing is sent anywhere."""


def run(order: str, names: tuple[str, ...], out: Path, python: Path) -> str:
    """The end of what the process said when it failed, else an empty text."""
    own = COMMANDS.get(names[0], []) if order == "before" else []
    front = [str(python.parent / own[0]), *own[1:]] if own else [str(python)]
    command = [str(python) if word == "python" else word for word in front]
    command += ["-m", "tests.other_tools.one", "--order", order]
    command += ["--tools", ",".join(names), "--every", str(EVERY), "--out", str(out)]
    command += ["--by-command"] if own else []
    sources = releases.fetch(releases.named(RELEASE))
    done = subprocess.run(
        command, cwd=ROOT, env=variables(sources, overlay=True, more=QUIET), text=True, timeout=600,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False,
    )
    return f"{order} {names}: {done.stdout[-1500:]}" if done.returncode else ""


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str], dict[str, Any]]:
    out = tmp_path_factory.mktemp("beside")
    python = environment.python()
    shared = [(order, ORDERS[order]) for order in ("after", "late")]
    single = [(order, (tool,)) for order in ("alone", "before", "between") for tool in ORDERS[order]]
    with ThreadPoolExecutor(store.AT_ONCE) as pool:
        said = list(pool.map(lambda asked: run(*asked, out, python), [*shared, *single]))
    for problem in filter(None, said):
        print(problem)
    return {tuple(file.stem.split("-")): json.loads(file.read_text()) for file in out.glob("*.json")}


def right(answers: dict[str, Any]) -> dict[str, tuple[bool, bool]]:
    return {case: (answer["stream"], answer["full"]) for case, answer in answers.items()}


def test_alone_the_overlay_makes_the_difference(results) -> None:
    alone = results["alone", "none"]
    assert all(all(modes) for modes in right(alone["on"]).values())
    assert sum(not all(modes) for modes in right(alone["off"]).values()) > 3


@pytest.mark.parametrize(("order", "tool"), BESIDE)
def test_the_same_answers_as_without_the_tool(results, order: str, tool: str) -> None:
    found = results[order, tool]
    assert found["beside"], f"{tool} did nothing in this process"
    alone = results["alone", "none"]
    differs = {case for case, answer in found["on"].items() if answer != alone["on"][case]}
    assert differs <= (NEEDS_THE_REFUSED if (order, tool) == LATE_WRAPPER else set())
    assert found["twice"] == [] and found["problems"] == []
    refused = {i: p[2] for i, p in found["patches"].items() if p[0] in ("conflict", "failed")}
    if (order, tool) == LATE_WRAPPER:
        stock, now = right(alone["off"]), right(found["on"])
        assert not [case for case in differs if any(a < b for a, b in zip(now[case], stock[case], strict=True))]
        who = "DelegatingParser.parse_delta was already replaced by tests.other_tools.tools.passing in "
        named = [i for i, reason in refused.items() if reason.startswith(who)]
        assert named and all(any(i in reason for i in refused) for i, reason in refused.items() if i not in named)
    else:
        assert refused == {}


@pytest.mark.parametrize(("order", "tool"), BESIDE)
def test_stock_after_undo_read_back(results, order: str, tool: str) -> None:
    found = results[order, tool]
    assert found["left"] == []
    assert found["off"] == results["alone", "none"]["off"]
