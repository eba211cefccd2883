"""What a piece of text can be read as: a number, a truth value, JSON, a Python literal."""

from __future__ import annotations

import ast
import json
import math
import warnings
from collections.abc import Iterator
from typing import Any

from engine_overlay.text.nesting import too_deep

MAX_LITERAL = 100_000
"""Characters up to which text is tried as a Python literal; ``ast`` needs some hundred bytes for each of them."""


def as_number(text: str, *, exact: bool, fraction: bool) -> int | float | None:
    """The number that ``text`` spells, or None; with ``exact`` only when it would be written back the same."""
    try:
        whole = int(text)
    except ValueError:
        pass
    else:
        return None if exact and str(whole) != text else whole
    try:
        number = float(text)
    except ValueError:
        return None
    if not math.isfinite(number):
        return None
    if number == int(number):
        return None if exact else int(number)
    return number if fraction and not (exact and repr(number) != text) else None


def as_truth(text: str, *, bits: bool) -> bool | None:
    text = text.lower()
    if text == "true" or (bits and text == "1"):
        return True
    if text == "false" or (bits and text == "0"):
        return False
    return None


def readings(text: str, *, python: bool = True) -> Iterator[Any]:
    """The values that ``text`` can be read as: JSON, then a Python literal. None of them is beyond JSON.

    None for what is nested too deeply.
    """
    if too_deep(text):
        return
    try:
        value = json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError):
        pass
    else:
        if is_json(value):
            yield value
            return
    if not python or len(text) > MAX_LITERAL:
        return
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            value = _plain(ast.literal_eval(text))
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return
    if is_json(value):
        yield value


def _refuse(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _plain(value: Any) -> Any:
    """A Python literal in the types of JSON. Raises TypeError for what has no counterpart there."""
    made: list[Any] = [value]
    pending: list[tuple[Any, Any]] = [(made, 0)]
    while pending:
        holder, at = pending.pop()
        value = holder[at]
        if isinstance(value, (list, tuple)):
            holder[at] = inside = list(value)
            pending += [(inside, number) for number in range(len(inside))]
        elif isinstance(value, dict):
            if not all(isinstance(key, str) for key in value):
                raise TypeError("a key that is no string")
            holder[at] = inside = dict(value)
            pending += [(inside, key) for key in inside]
        elif value is not None and not isinstance(value, (bool, int, float, str)):
            raise TypeError(f"{type(value).__name__} is not JSON")
    return made[0]


def is_json(value: Any) -> bool:
    """Whether no number in it is infinite: ``1e999`` is valid JSON, and what Python reads is not."""
    pending = [value]
    while pending:
        one = pending.pop()
        if isinstance(one, float) and not math.isfinite(one):
            return False
        if isinstance(one, (dict, list)):
            pending.extend(one.values() if isinstance(one, dict) else one)
    return True
