"""The overlay's one logger: single lines on stderr, each led by ``engine-overlay:``."""

from __future__ import annotations

import logging
import sys

logger = logging.getLogger("engine_overlay")

LEVELS = {"quiet": logging.CRITICAL + 1, "warning": logging.WARNING, "info": logging.INFO, "debug": logging.DEBUG}


class _Stderr(logging.Handler):
    """Writes to whatever ``sys.stderr`` is at that moment; an engine may replace it."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            level = "" if record.levelno <= logging.INFO else f"{record.levelname}: "
            line = " ".join(record.getMessage().split())
            sys.stderr.write(f"engine-overlay: {level}{line}\n")
            sys.stderr.flush()
        except Exception:
            # A closed stderr must not stop the engine.
            pass


def configure(level: str) -> None:
    """Set the level by its word in :data:`LEVELS`; installs the handler once."""
    if not any(isinstance(h, _Stderr) for h in logger.handlers):
        logger.addHandler(_Stderr())
        logger.propagate = False
    logger.setLevel(LEVELS[level])


def one_line(error: BaseException) -> str:
    """``TypeName: first line of the message``."""
    text = str(error).strip().splitlines()
    return f"{type(error).__name__}: {text[0]}" if text else type(error).__name__
