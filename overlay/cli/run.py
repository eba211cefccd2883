"""``engine-overlay run -- <command>``: the way in where no start-up file can be installed.

The command gets one more folder at the front of ``PYTHONPATH``, holding a ``sitecustomize`` that waits for an
engine. Children inherit it, so workers are covered; interpreters started with -I, -E or -S are not.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import engine_overlay

HELP = """\
usage: engine-overlay run -- COMMAND [ARGUMENT ...]

Starts COMMAND with the overlay in every Python process below it, where no start-up file can be installed. It
only puts one folder at the front of PYTHONPATH. The command needs no engine-overlay in its own environment.

example: engine-overlay run -- vllm serve MODEL"""

NOT_FOUND = 127
NOT_EXECUTABLE = 126
USAGE = 2


def hooks_dir() -> Path:
    """The folder to put on ``PYTHONPATH``: it holds our ``sitecustomize.py`` and what that needs.

    :raises FileNotFoundError: the installation is incomplete.
    """
    package = Path(engine_overlay.__file__).resolve().parent
    # Installed by a wheel, and in a checkout (editable) beside the package's sources.
    for folder in (package / "_launcher", package.parent / "sitecustomize_hooks"):
        if (folder / "sitecustomize.py").is_file():
            return folder
    raise FileNotFoundError(f"no sitecustomize.py beside {package}")


def environment(base: dict[str, str]) -> dict[str, str]:
    """``base`` with the folder of :func:`hooks_dir` at the front of ``PYTHONPATH``; unchanged when off."""
    if base.get("ENGINE_OVERLAY", "").strip().lower() == "off":
        return dict(base)
    ours = str(hooks_dir())
    # An empty entry would mean the current folder, so an empty PYTHONPATH must not be joined on.
    entries = [entry for entry in [base.get("PYTHONPATH", "")] if entry]
    if entries and entries[0].split(os.pathsep)[0] == ours:
        return dict(base)
    return {**base, "PYTHONPATH": os.pathsep.join([ours, *entries])}


def run(argv: list[str]) -> int:
    """Replace this process by the command ``argv``; return an exit code only when that is not possible.

    Codes are those of a shell: 127 for no such command, 126 for one that cannot be executed, 2 for none.
    """
    if argv[:1] in (["-h"], ["--help"]):
        print(HELP)
        return 0
    command = argv[1:] if argv[:1] == ["--"] else argv
    if not command:
        return _fail("no command given", "as in: engine-overlay run -- vllm serve MODEL", USAGE)
    try:
        env = environment(dict(os.environ))
    except FileNotFoundError as problem:
        return _fail(str(problem), "reinstall engine-overlay", 1)
    sys.stdout.flush()
    sys.stderr.flush()
    try:
        os.execvpe(command[0], command, env)
    except FileNotFoundError:
        if os.sep in command[0] and Path(command[0]).exists():
            # The kernel says the same of a script whose interpreter is missing.
            return _fail(f"{command[0]}: its interpreter was not found", "see its first line", NOT_EXECUTABLE)
        return _fail(f"{command[0]}: command not found", "check the name and PATH", NOT_FOUND)
    except NotADirectoryError:
        return _fail(f"{command[0]}: command not found", "check the path", NOT_FOUND)
    except (OSError, ValueError) as problem:
        reason = getattr(problem, "strerror", None) or str(problem)
        return _fail(f"{command[0]}: {reason.lower()}", "is it a program you may run?", NOT_EXECUTABLE)


def _fail(reason: str, step: str, code: int) -> int:
    print(f"engine-overlay: run: {reason}; {step}", file=sys.stderr)
    return code
