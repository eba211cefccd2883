"""How much work a piece of code does: calls, and characters copied. Counted, and so the same on every machine."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import engine_overlay.text

_FOLDER = str(Path(engine_overlay.text.__file__).parent)


class Effort:
    """``calls``: of Python functions. ``copied``: characters of all strings that were made on the way.

    A string counts once, when a function of engine_overlay.text has it as an argument, a variable, a result or an
    attribute. So whoever slices or joins all of a text for each of its pieces is found out, though it is one call.
    """

    def __init__(self) -> None:
        self.calls = self.copied = 0
        # With the strings themselves, so that no address is used again.
        self._known: dict[int, str] = {}

    def of(self, work: Callable[[], Any]) -> Any:
        """What ``work`` returns."""
        sys.setprofile(self._saw)
        try:
            return work()
        finally:
            sys.setprofile(None)

    def _saw(self, frame: FrameType, event: str, arg: Any) -> None:
        if event == "call":
            self.calls += 1
        elif event == "return" and frame.f_code.co_filename.startswith(_FOLDER):
            values = frame.f_locals
            self._count(arg)
            for value in values.values():
                self._count(value)
            if not frame.f_back.f_code.co_filename.startswith(_FOLDER):
                # Once for each time that somebody outside asks for something.
                for value in getattr(values.get("self"), "__dict__", {}).values():
                    self._count(value)

    def _count(self, value: Any) -> None:
        if isinstance(value, str) and id(value) not in self._known:
            self._known[id(value)] = value
            self.copied += len(value)


def growth(work: Callable[[int], Any], size: int, times: int = 3) -> float:
    """How many times more ``work`` costs for ``times`` the ``size``, by the measure in which it is worse."""
    small, large = Effort(), Effort()
    small.of(lambda: work(size))
    large.of(lambda: work(size * times))
    return max(large.calls / small.calls, large.copied / small.copied)
