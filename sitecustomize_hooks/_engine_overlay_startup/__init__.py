"""Waits for an inference engine to be imported, then lets engine_overlay in; does nothing until then.

This is the only module of the overlay that runs in every Python process, so it is small and imports nothing but
``sys``, and the module itself is the meta-path finder. It is a package because uv, unlike pip, leaves the compiled
file of a top-level module behind when it uninstalls.
"""

import sys

__engine_overlay__ = True  # how the overlay's own code recognises this finder on sys.meta_path

way = None


def start(by="startup"):
    """Wait for an engine; ``by`` names who asked. A virtual environment runs a .pth file twice: once counts."""
    global way
    # The .pth line, which is compiled at every start, knows the usual spelling only. site has imported os.
    if way is None and sys.modules["os"].environ.get("ENGINE_OVERLAY", "").strip().lower() != "off":
        way = by
        sys.meta_path.insert(0, sys.modules[__name__])


def find_spec(name, path=None, target=None):
    """Answer for an engine's package only."""
    if name == "vllm" or name == "aphrodite":
        from _engine_overlay_startup import door

        return door.find_spec(name, path, target)
