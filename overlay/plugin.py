"""The second way in: entry points ``vllm.general_plugins`` and ``aphrodite.general_plugins``.

Engines call it in every process, also in those started without start-up files; modules that were imported before
are then patched in place.
"""

from __future__ import annotations

import os


def load() -> None:
    """Start the overlay. Raises only what strict mode wants raised; engines call plug-ins unguarded."""
    if os.environ.get("ENGINE_OVERLAY", "").strip().lower() == "off":
        return
    try:
        from engine_overlay import importer
    except Exception as error:
        import sys

        sys.stderr.write(f"engine-overlay: ERROR: not started ({type(error).__name__}: {error}); reinstall it\n")
        return
    importer.install("plugin")
