"""An engine's own command, as its console script starts it, with everything below the executor scripted.

    python -m tests.serving.front vllm serve MODEL --distributed-executor-backend tests.serving.front_executor.Scripted

The API server or whatever stands in its place, the engine core and its process are the engine's own. With the variable
IN_PROCESS the core is in this process, which costs half.
"""

from __future__ import annotations

import importlib
import os
import sys

from tests.budget import deep_core
from tests.serving import scripted_core

IN_PROCESS = "TESTS_FRONT_IN_PROCESS"


class Core(deep_core.DeepCore):
    """The engine's core in this process, for servers of text and of vectors."""

    def executor(self) -> type:
        from tests.serving.front_executor import Scripted

        return Scripted

    async def get_supported_tasks_async(self) -> tuple[str, ...]:
        return self._client.get_supported_tasks()


def main() -> None:
    # Before the engine is imported: the overlay asks what this program is.
    sys.argv = sys.argv[1:]
    engine = sys.argv[0]
    if IN_PROCESS in os.environ:
        deep_core.install(engine, Core)
    else:
        scripted_core.describe_models(importlib.import_module(f"{engine}.model_executor.models.registry"))
    importlib.import_module(f"{engine}.entrypoints.cli.main").main()


if __name__ == "__main__":
    main()
