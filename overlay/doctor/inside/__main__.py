"""Answer questions about the engine of this process, one marked line of JSON for each.

    echo '{"engine": "vllm", "questions": ["names"], "told": {}}' | python -m engine_overlay.doctor.inside

What the engine itself writes to standard output is no answer; a question that raises does not stop the next one.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from typing import Any

from engine_overlay import engines, settings
from engine_overlay.doctor import probes
from engine_overlay.doctor.child import MARK
from engine_overlay.doctor.inside import arguments, config, parsers, targets, template
from engine_overlay.log import one_line

QUESTIONS = {
    "probes": lambda asked: probes.probe_all(asked.engine.name, overlay=_has_overlay()),
    "start": targets.start,
    "arguments": arguments.parsed,
    "names": parsers.names,
    "tokenizer": parsers.tokenizer,
    "reasoning": parsers.reasoning,
    "tools": parsers.tools,
    "template": template.rendered,
    "readers": template.readers,
    "config": config.made,
    "budget": config.budget,
    "targets": targets.replaced,
}


class Asked:
    """What is known in this process: what the doctor told, the engine, and what earlier questions left."""

    def __init__(self, engine: Any, told: dict[str, Any]) -> None:
        self.engine, self.told = engine, told
        self.args: Any = None
        self.tokenizer: Any = None
        self.config: Any = None
        self.turns: dict[str, str] | None = None


def _has_overlay() -> bool:
    return settings.read().mode != "off"


def main() -> int:
    asked = json.load(sys.stdin)
    # Whatever the engine prints goes to standard error, also from its own libraries.
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)

    def say(**said: Any) -> None:
        answers.write(MARK + json.dumps(said, default=str) + "\n")
        answers.flush()

    name = asked["engine"]
    say(asking="import")
    early = name in sys.modules
    if _has_overlay():
        from engine_overlay import importer

        importer.install("api")
    engine = engines.locate(name)
    if engine is None:
        say(question="import", error=f"no package {name} is on sys.path")
        return 1
    try:
        engine.module("")
    except BaseException as error:
        say(question="import", error=one_line(error))
        return 1
    say(question="import", answer={"early": early})
    state = Asked(engine, asked["told"])
    for question in asked["questions"]:
        say(asking=question)
        try:
            with contextlib.redirect_stdout(sys.stderr):
                answer = QUESTIONS[question](state)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # a SystemExit of an engine is an answer too
            say(question=question, error=one_line(error)[:400])
        else:
            say(question=question, answer=answer)
    say(done=True)
    answers.flush()
    # Threads of an engine would keep the process alive.
    os._exit(0)


if __name__ == "__main__":
    sys.exit(main())
