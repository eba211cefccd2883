"""Runs the parts of ``make test`` side by side, the longest first, and keeps the table of what each costs.

    python -m tests.lanes                   what CI runs
    python -m tests.lanes --all             all of it: every release, all examples; for a release, and each night
    python -m tests.lanes matrix serving    these parts
    python -m tests.lanes --table           write the times of the last runs into CONTRIBUTING.md

A part is a run of pytest. What it printed is shown when it ends: the end of it, or all of it when it fails.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from engine_overlay.verify.releases import cache

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "CONTRIBUTING.md"
LANES = 3
"""One more than cores: parts wait for servers that start, and for tokens that are paced."""
EVERYTHING = {
    "OVERLAY_RELEASES": "all",
    "OVERLAY_EVERY_CASE": "1",
    "PROXY_REQUESTS": "10000",
    "PROXY_FUZZ_SECONDS": "60",
    "STATUS_FUZZ_SECONDS": "60",
}
"""What makes the tests of a part ask everything."""

PATCHES = ("parsing", "reasoning", "tools", "unified")
ASKED = tuple(f"tests/canary/test_{name}.py" for name in ("broken", "command", "report"))


@dataclass(frozen=True)
class Part:
    """What it shows, and its arguments of pytest; ``live`` is the module that makes its environment."""

    shows: str
    arguments: tuple[str, ...]
    live: str = ""


PARTS = {
    "live": Part(
        "the released engine with its own core, by the openai client: overlay on, off, not installed",
        ("tests/live",),
        "tests.live.environment",
    ),
    "live-rl": Part(
        "rollouts of the released engine against a trainer; weights changed under running requests",
        ("tests/live_rl",),
        "tests.live_rl.environment",
    ),
    "matrix": Part(
        "public cases and the probe of each patch on the releases, overlay off and on, and undone; VERSIONS.md",
        ("tests/matrix", "tests/serving/test_serving.py"),
    ),
    "serving": Part(
        "API servers of releases over HTTP: one name for both parsers, the cases of old releases; verify",
        ("tests/serving", "--ignore=tests/serving/test_serving.py", "tests/verify"),
    ),
    "patches": Part(
        "each patch where what it touches changed: more streams and cases, it alone, and changed bodies",
        ("-m", "engine", *(f"tests/patches/{area}" for area in PATCHES), "tests/patches/test_changed_bodies.py",
         "tests/patches/test_more_cases.py", "tests/patches/test_legacy_parsers.py"),
    ),  # fmt: skip
    "rl": Part(
        "the rl profile in each way to start an engine; float32 heads; processed log-probabilities",
        ("-m", "engine", "tests/patches/runtime", "tests/patches/weights", "tests/patches/logprobs"),
    ),
    "properties": Part("made-up dialogues, right in every part, streaming and full alike", ("tests/properties",)),
    "budget": Part("thinking budgets and structured output on the engines' own core", ("tests/budget",)),
    "doctor": Part(
        "what the doctor finds in broken engines, and in releases with flags and models that do not fit",
        ("tests/doctor/test_installation.py", "tests/doctor/test_on_engines.py"),
    ),
    "other-tools": Part(
        "beside ddtrace, OpenTelemetry, wrapt, coverage and others, in each order: the same answers, and undone stock",
        ("tests/other_tools",),
    ),
    "suite": Part("the engine's own tests end alike with the overlay off and on", ("tests/engine_suite",)),
    "packaging": Part(
        "every way to install it, in fresh environments of each Python that is here", ("tests/packaging",)
    ),
    "proxy": Part("the stray-tag filter: any chunking, as a process, as middleware of a release", ("tests/proxy",)),
    "canary": Part("the canary as a process, against a server that breaks its answers in every way", ASKED),
    "fast": Part(
        "everything that needs no engine",
        ("--numprocesses=2", "--dist=worksteal", "-m", "not engine",
         "tests/warm", "tests/core", "tests/text", "tests/patches", "tests/rl",
         "tests/canary", "tests/doctor/test_files.py", "tests/doctor/test_launch.py",
         *(f"--ignore={path}" for path in ASKED)),
    ),  # fmt: skip
}


def run(name: str, every: bool, say: threading.Lock, *, alone: bool) -> bool:
    """Run one part, print its end and keep what it took; whether all its tests passed.

    One that is ``alone`` has both cores, and says what it does as it goes.
    """
    part = PARTS[name]
    env = os.environ | (EVERYTHING if every else {}) | ({} if alone else {"OVERLAY_JOBS": "1"})
    begin = time.monotonic()
    with tempfile.TemporaryFile("w+") as log:
        command = [_interpreter(part.live), "-m", "pytest", "-q", "--durations=5", *part.arguments]
        process = subprocess.Popen(command, cwd=ROOT, env=env, stdout=None if alone else log, stderr=subprocess.STDOUT)
        # With all that it started and waited for.
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        log.seek(0)
        lines = log.read().splitlines()
    spent, passed = used.ru_utime + used.ru_stime, process.returncode == 0
    with say:
        how = "passed" if passed else "FAILED"
        print(f"== {name}: {how}, {spent:.0f} s of CPU in {time.monotonic() - begin:.0f} s")
        print("\n".join(lines[-9:] if passed else lines), flush=True)
        if passed:
            _keep(name, every, spent)
    return passed


def _interpreter(live: str) -> str:
    """That of the environment which the module ``live`` makes, and prints last."""
    if not live:
        return sys.executable
    made = subprocess.run([sys.executable, "-m", live], cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True)
    return made.stdout.splitlines()[-1]


def _kept() -> dict[str, float]:
    file = cache() / "durations.json"
    return json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}


def _keep(name: str, every: bool, spent: float) -> None:
    found = _kept() | {f"{name} {'all' if every else 'test'}": round(spent)}
    part = cache() / "durations.part"
    part.write_text(json.dumps(found, indent=1, sort_keys=True), encoding="utf-8")
    part.replace(cache() / "durations.json")


def side_by_side(names: Sequence[str], every: bool) -> list[str]:
    """Run the parts in all lanes, the longest first; the names of those that failed."""
    before = _kept()
    waiting = sorted(names, key=lambda name: -before.get(f"{name} {'all' if every else 'test'}", 0))
    say, failed = threading.Lock(), []

    def work() -> None:
        while waiting:
            name = waiting.pop(0)
            try:
                passed = run(name, every, say, alone=len(names) == 1)
            except Exception as error:
                passed = False
                print(f"== {name}: {type(error).__name__}: {error}", flush=True)
            if not passed:
                failed.append(name)

    threads = [threading.Thread(target=work) for _ in range(LANES)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return failed


_HEAD = "| target | what it shows | make test | make test-all |\n|---|---|---|---|\n"


def table() -> str:
    """The parts and the seconds of CPU that they took last."""
    found = _kept()
    took = {name: [found.get(f"{name} {run}", 0) for run in ("test", "all")] for name in PARTS}
    dearest = sorted(PARTS, key=lambda name: -took[name][0])
    rows = [[f"`test-{name}`", PARTS[name].shows, *took[name]] for name in dearest]
    rows.append(["all", "", *map(sum, zip(*took.values(), strict=True))])
    return _HEAD + "".join(f"| {' | '.join(str(cell or '') for cell in row)} |\n" for row in rows)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.lanes", description=__doc__.partition("\n")[0])
    parser.add_argument("parts", nargs="*", metavar="PART", choices=[*PARTS, []])
    parser.add_argument("--all", action="store_true", help="every release and all examples")
    parser.add_argument("--table", action="store_true", help="write the times of the last runs into CONTRIBUTING.md")
    options = parser.parse_args()
    if options.table:
        page = PAGE.read_text(encoding="utf-8")
        new = re.sub(rf"{re.escape(_HEAD)}(\|.*\n)*", lambda _: table(), page)
        PAGE.write_text(new, encoding="utf-8")
        return 0
    begin = time.monotonic()
    # What costs little has been run before by itself.
    failed = side_by_side(options.parts or [name for name in PARTS if name != "fast"], options.all)
    print(f"== all in {time.monotonic() - begin:.0f} s")
    if failed:
        print(f"failed: {', '.join(failed)}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
