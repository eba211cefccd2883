"""What the words of verdicts and states mean to a user, and what to do next about those that are not well."""

from __future__ import annotations

import subprocess

VERDICTS = {
    "apply": "goes in when the engine is imported",
    "native": "this release does not have the fault, or has its own way out",
    "disabled": "left out by a setting, or off by default",
    "untested": "newer than what it was tested on, and not recognised",
    "drifted": "the function it replaces is not one that was tested",
    "missing": "the function it replaces is not there",
    "conflict": "another patch stands in its way, or one it needs is not in",
    "failed": "it raised while it went in, and was taken back",
    "out of path": "it would go in, but requests of this server would not meet it",
}

STATES = {
    "applied": "it is in, read back from the live function",
    "staged": "it waits for a module to be imported, or for another patch",
    "displaced": "somebody else has put another function over it",
    "undone": "it was taken out again",
    "out of path": "it is in, but requests of this process or server do not meet it",
}

_STEPS = {
    "untested": 'see what changed with "engine-overlay drift", or set ENGINE_OVERLAY_UNTESTED=apply at your own risk',
    "drifted": 'see what changed with "engine-overlay drift"; ENGINE_OVERLAY_DISABLE={id} silences it',
    "missing": 'see what changed with "engine-overlay drift"; ENGINE_OVERLAY_DISABLE={id} silences it',
    "conflict": "set ENGINE_OVERLAY_DISABLE to the one that you want less",
    "failed": 'run "engine-overlay doctor" and report what it prints; ENGINE_OVERLAY_DISABLE={id} silences it',
    "displaced": "find what else patches the engine here, or import it before; the fault may be back",
}


def next_step(word: str, patch_id: str) -> str | None:
    """What to do about a patch with this verdict or state; None when there is nothing to do."""
    step = _STEPS.get(word)
    return step and step.format(id=patch_id)


def ordered(word: str) -> int:
    """A sort key: what is wrong first, then what is in, then the rest."""
    first = ("failed", "displaced", "conflict", "missing", "drifted", "untested")
    rest = ("out of path", "staged", "undone", "applied", "apply", "native", "disabled")
    return (*first, *rest).index(word) if word in (*first, *rest) else 0


def why_not_fetched(error: OSError | subprocess.CalledProcessError) -> str:
    """What kept a release from being fetched; pip has said more on standard error."""
    if isinstance(error, subprocess.CalledProcessError):
        return f"pip ended with exit status {error.returncode}"
    return error.strerror or str(error)
