"""In the process of a release: the states of the patches in a server whose parsers are all without a parser engine.

    python -m tests.patches.legacy_parsers
"""

from __future__ import annotations

import json

MODULES = (
    "entrypoints.openai.chat_completion.serving",
    "reasoning.deepseek_r1_reasoning_parser",
    "tool_parsers.hermes_tool_parser",
)


def main() -> None:
    from engine_overlay import engines, status

    (engine,) = engines.installed()
    for name in MODULES:
        engine.module(name)
    print(json.dumps({patch["id"]: patch["state"] for patch in status.report()["patches"]}))


if __name__ == "__main__":
    main()
