"""One run of an engine's own parser tests, with the overlay on or off.

The tests are the release's own (see sources.py), its code is the matrix's copy of the release, and the
overlay comes in through its start-up file, as at a user's. Hub and network are closed, so that a test
which needs a model ends at once, and in the same way, in every run.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine_overlay.verify.releases import Release, cache, fetch
from tests.engine_suite.sources import folders, suite
from tests.matrix import environment

PLUGIN = Path(__file__).with_name("plugin")
TIMEOUT_S = 3600
"""Seconds for one run. It takes two minutes of CPU time; the rest is for machines that others use too."""


class SuiteFailed(RuntimeError):
    """The run of an engine's tests gave no result; the message ends with what it printed last."""


@dataclass(frozen=True)
class Run:
    """How the tests of one release ended; ``overlay`` is the status report, None when it was off."""

    outcomes: Mapping[str, str]
    reasons: Mapping[str, str]
    overlay: Mapping[str, Any] | None
    modules: tuple[str, ...]

    @property
    def counts(self) -> Counter[str]:
        """How many tests ended in each way, without the types of exceptions."""
        return Counter(outcome.partition(" ")[0] for outcome in self.outcomes.values())

    def passed(self, folder: str = "") -> set[str]:
        """The ids below ``folder`` that passed."""
        return {node for node, o in self.outcomes.items() if o == "passed" and node.startswith(folder)}


def off(release: Release, fresh: bool = False) -> Run:
    """The run without the overlay, from the cache when the same tests ran in the same environment before."""
    kept = cache() / "suites" / f"{release.label}-off-{_key(release)}.json"
    if kept.is_file() and not fresh:
        return _read(kept)
    result = run(release, overlay=False)
    part = kept.with_suffix(f".{os.getpid()}.part")
    part.write_text(json.dumps(vars(result)), encoding="utf-8")
    part.replace(kept)
    return result


def run(release: Release, *, overlay: bool) -> Run:
    """Run the parser tests of ``release`` once. Raises SuiteFailed when they cannot be run."""
    folder = suite(release)
    command = [str(environment.python()), "-m", "pytest", "-p", "overlay_outcomes", "-p", "no:cacheprovider"]
    command += ["-q", "--no-header", "--tb=no", "--disable-warnings", "--continue-on-collection-errors"]
    with tempfile.TemporaryDirectory() as scratch:
        result = Path(scratch, "outcomes.json")
        more = _closed(Path(scratch)) | {
            "OVERLAY_OUTCOMES": str(result),
            # The engine's package `tests` must not meet ours, so the checkout is not on the path.
            "PYTHONPATH": os.pathsep.join([str(fetch(release)), str(PLUGIN)]),
        }
        try:
            done = subprocess.run(
                [*command, *folders(release)],
                cwd=folder,
                env=environment.variables(None, overlay=overlay, more=more),
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=TIMEOUT_S,
            )
        except subprocess.TimeoutExpired as error:
            message = f"{release.label}: no result after {TIMEOUT_S} s\n{_tail(error.stdout)}"
            raise SuiteFailed(message) from error
        # 0 and 1 are results. So is 2, which errors in collection give: the file is written at the very end.
        if done.returncode not in (0, 1, 2) or not result.is_file():
            raise SuiteFailed(f"{release.label}: pytest ended with {done.returncode}\n{_tail(done.stdout)}")
        return _read(result)


def _closed(scratch: Path) -> dict[str, str]:
    """Variables that close the network: an empty hub, and a proxy that refuses every connection at once."""
    nowhere = dict.fromkeys(("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"), "http://127.0.0.1:9")
    local = dict.fromkeys(("no_proxy", "NO_PROXY"), "127.0.0.1,localhost")
    hub = {"HF_HOME": str(scratch / "hub"), "TRANSFORMERS_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1"}
    return nowhere | local | hub


def _key(release: Release) -> str:
    """Changes with everything that a run without the overlay depends on: the environment, and how we run."""
    digest = hashlib.sha256(json.dumps([folders(release), sys.version_info[:2]]).encode())
    for file in (environment.REQUIREMENTS, PLUGIN / "overlay_outcomes.py", Path(__file__)):
        digest.update(file.read_bytes())
    return digest.hexdigest()[:12]


def _read(path: Path) -> Run:
    data = json.loads(path.read_text(encoding="utf-8"))
    return Run(data["outcomes"], data["reasons"], data["overlay"], tuple(data["modules"]))


def _tail(text: str | bytes | None) -> str:
    decoded = text.decode(errors="replace") if isinstance(text, bytes) else text or ""
    return "\n".join(decoded.splitlines()[-25:])
