"""Starts a process that asks an engine, and reads what it answered: a crash or a hang costs only the rest.

A process is told everything on its standard input as JSON, and gives a marked line for each question.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

MARK = "engine-overlay-doctor:"
SECONDS = 180.0
"""How long a process may take for all its questions; a first import of an engine may take half of it."""


@dataclass(slots=True)
class Answers:
    """``given`` by question; ``errors`` by question for those that raised there.

    ``ended`` is a line about a process that did not come to its end, with the question it was at.
    """

    given: dict[str, Any] = field(default_factory=dict)
    errors: dict[str, str] = field(default_factory=dict)
    ended: str | None = None

    def get(self, question: str) -> Any:
        """The answer, or None."""
        return self.given.get(question)


def ask(
    engine: str,
    questions: Sequence[str],
    told: Mapping[str, Any],
    *,
    overlay: bool,
    environ: Mapping[str, str],
    seconds: float = SECONDS,
) -> Answers:
    """Ask the engine in a fresh process with these variables; without the overlay it is the stock engine.

    Never raises for what happens there.
    """
    # No download, and no word of it to anyone: it is asked about what is here.
    env = {**environ, "HF_HUB_OFFLINE": "1", "ENGINE_OVERLAY_LOG": "quiet", "DO_NOT_TRACK": "1"}
    env |= {"VLLM_NO_USAGE_STATS": "1", "APHRODITE_NO_USAGE_STATS": "1", "TOKENIZERS_PARALLELISM": "false"}
    if not overlay:
        env["ENGINE_OVERLAY"] = "off"
    request = json.dumps({"engine": engine, "questions": list(questions), "told": dict(told)})
    with subprocess.Popen(
        [sys.executable, "-m", "engine_overlay.doctor.inside"],
        env=env,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        # Of its own, so that what it started goes with it.
        start_new_session=True,
    ) as process:
        hangs = False
        try:
            out, err = process.communicate(request, timeout=seconds)
        except subprocess.TimeoutExpired:
            hangs = True
            _end(process)
            out, err = process.communicate()
    return _read(out, err, process.returncode, seconds if hangs else None)


def _end(process: subprocess.Popen[str]) -> None:
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        process.kill()


def _read(out: str, err: str, code: int, hung_after: float | None) -> Answers:
    answers = Answers()
    asked, done = None, False
    for line in out.splitlines():
        if not line.startswith(MARK):
            continue
        said = json.loads(line[len(MARK) :])
        asked = said.get("asking", asked)
        done |= "done" in said
        if "answer" in said:
            answers.given[said["question"]] = said["answer"]
        elif "error" in said:
            answers.errors[said["question"]] = said["error"]
    if not done:
        at = f"at the question {asked!r}" if asked else "before the first question"
        if hung_after is not None:
            answers.ended = f"it gave no answer within {hung_after:g} s, {at}"
        else:
            how = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit status {code}"
            last = next((line.strip() for line in reversed(err.splitlines()) if line.strip()), "")
            answers.ended = f"it ended with {how} {at}" + (f": {last[:200]}" if last else "")
    return answers
