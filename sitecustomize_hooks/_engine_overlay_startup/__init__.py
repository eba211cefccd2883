"""Waits for an inference engine to be imported, then lets engine_overlay in; does nothing until then.

This is the only module of the overlay that runs in every Python process. So it is small, imports nothing but ``sys``,
is the meta-path finder itself, and importing it is all it takes: a virtual environment reads a .pth file twice, and
the line there is compiled each time. It is a package because uv, unlike pip, leaves the compiled file of a top-level
module behind when it uninstalls.
"""

import sys

__engine_overlay__ = True  # how the overlay's own code recognises this finder on sys.meta_path

way = "startup"


def start():
    """Nothing more; but the line of engine_overlay.start (Python 3.15) has to name a function."""


def load():
    """The second way in: entry points ``vllm.general_plugins`` and ``aphrodite.general_plugins``.

    Engines call it in every process, also in those started without start-up files; what was imported before is
    then patched in place. Switched off, it loads nothing.
    """
    if on:
        from _engine_overlay_startup import door

        door.enter(None, "plugin")


def find_spec(name, path=None, target=None):
    """Answer for an engine's package only."""
    if name == "vllm" or name == "aphrodite":
        from _engine_overlay_startup import door

        return door.find_spec(name, path, target)


# The .pth line knows the usual spelling of "off" only. site has imported os before it reads any start-up file.
on = sys.modules["os"].environ.get("ENGINE_OVERLAY", "").strip().lower() != "off"
if on:
    sys.meta_path.insert(0, sys.modules[__name__])
