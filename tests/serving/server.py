"""The engine's own API server on the scripted core; runs inside the engine environment.

    python -m tests.serving.server vllm --modules-file FILE -- <arguments of the API server>

On SIGUSR1 it writes to FILE which modules of the overlay are imported and which of its import hooks are in
place.
"""

from __future__ import annotations

import argparse
import json
import runpy
import signal
import sys
from collections.abc import Callable
from pathlib import Path


def main(install: Callable[[str], None] | None = None) -> None:
    """``install`` puts another core than the scripted one in place."""
    parser = argparse.ArgumentParser(prog="python -m tests.serving.server")
    parser.add_argument("engine", choices=("vllm", "aphrodite"))
    parser.add_argument("--modules-file", type=Path, required=True)
    own, server = sys.argv[1 : sys.argv.index("--")], sys.argv[sys.argv.index("--") + 1 :]
    options = parser.parse_args(own)
    signal.signal(signal.SIGUSR1, lambda *_: _write_modules(options.modules_file))

    from tests.serving import scripted_core

    (install or scripted_core.install)(options.engine)
    name = f"{options.engine}.entrypoints.openai.api_server"
    sys.argv = [name, *server]
    runpy.run_module(name, run_name="__main__", alter_sys=True)


def _write_modules(file: Path) -> None:
    names = ("engine_overlay", "_engine_overlay_startup")
    found = {
        "modules": sorted(name for name in sys.modules if name.partition(".")[0] in names),
        "finders": [
            type(finder).__name__ for finder in sys.meta_path if hasattr(finder, "__engine_overlay__")
        ],
    }
    part = file.with_suffix(".part")
    part.write_text(json.dumps(found), encoding="utf-8")
    part.replace(file)


if __name__ == "__main__":
    main()
