"""An engine's own command, as its console script starts it, with everything below the executor scripted.

    python -m tests.serving.front vllm serve MODEL --distributed-executor-backend tests.serving.front_executor.Scripted

The API server or whatever stands in its place, the engine core and its process are the engine's own.
"""

from __future__ import annotations

import importlib
import sys

from tests.serving import scripted_core


def main() -> None:
    # Before the engine is imported: the overlay asks what this program is.
    sys.argv = sys.argv[1:]
    engine = sys.argv[0]
    scripted_core.describe_models(importlib.import_module(f"{engine}.model_executor.models.registry"))
    importlib.import_module(f"{engine}.entrypoints.cli.main").main()


if __name__ == "__main__":
    main()
