"""The engine's own API server on its own engine core, with a scripted executor; see :mod:`tests.serving.server`.

    python -m tests.budget.deep_server vllm --modules-file FILE -- <arguments of the API server>
"""

from __future__ import annotations

from tests.budget import deep_core
from tests.serving import server

if __name__ == "__main__":
    server.main(deep_core.install)
