"""Wrappers over a function: what lies beneath them, whose they are, and how one is made to hold another function.

Identity means ``is`` here: a proxy of a function compares equal to it, hashes alike and has its class, so that ``==``,
``in`` and ``isinstance`` would take somebody else's wrapper for ours.
"""

from __future__ import annotations

import functools
import inspect
import weakref
from collections.abc import Iterator
from types import FunctionType
from typing import Any

MARK = "__engine_overlay__"
"""Attribute of every replacement: the id of its patch. ``functools.wraps`` copies it, so it proves nothing."""

OBSERVERS = frozenset({"beartype", "ddtrace", "line_profiler", "opentelemetry"})
"""Packages whose wrappers watch a call and pass it on, each tried in tests/other_tools. A patch may lie over one of
these; over any other wrapper, which may be somebody else's mend of the same function, it does not go in."""

NOTHING = object()

_DEPTH = 64
"""Wrappers over one function, at the most: a longer chain is a circle."""

_ours: weakref.WeakSet[FunctionType] = weakref.WeakSet()


def claim(function: FunctionType, patch_id: str) -> None:
    """Note that this function is a replacement of the overlay."""
    setattr(function, MARK, patch_id)
    _ours.add(function)


def is_ours(obj: Any) -> bool:
    return type(obj) is FunctionType and obj in _ours


def is_kind(obj: Any) -> bool:
    """Whether this is one of the built-in descriptors that hold a function."""
    return type(obj) in (staticmethod, classmethod, property)


def function_of(raw: Any) -> Any:
    """The function in a kind, also behind a proxy of it; anything else as it is."""
    if isinstance(raw, (staticmethod, classmethod)):
        return raw.__func__
    if isinstance(raw, property):
        return raw.fget
    return raw


def _wrapped(obj: Any) -> Any:
    """What a kind or a wrapper holds; None for what wraps nothing."""
    if type(obj) in (staticmethod, classmethod):
        return obj.__func__
    if type(obj) is property:
        return obj.fget
    # Not by getattr: the attributes of a stranger may import things, or raise anything.
    found = inspect.getattr_static(obj, "__wrapped__", None)
    return obj.__wrapped__ if inspect.isdatadescriptor(found) else found


def chain(raw: Any) -> Iterator[Any]:
    """``raw`` and what it wraps, the outermost first: kinds, wrappers, the function."""
    for _ in range(_DEPTH):
        yield raw
        raw = _wrapped(raw)
        if raw is None:
            return


def innermost(raw: Any) -> Any:
    """What lies beneath all wrappers."""
    return list(chain(raw))[-1]


def holder_of(now: Any, mine: Any) -> Any:
    """The wrapper that holds ``mine`` in the chain that starts at ``now``, or None."""
    if now is NOTHING:
        return None
    target, links = function_of(mine), list(chain(now))
    pairs = zip(links, links[1:], strict=False)
    return next((above for above, inner in pairs if inner is mine or inner is target), None)


def over(now: Any, mine: Any) -> list[Any] | None:
    """The wrappers of others that lie over ``mine``, the outermost first; None when it does not lie there."""
    if not is_in(now, mine):
        return None
    links = list(chain(now))
    below = next(n for n, link in enumerate(links) if link is mine or link is function_of(mine))
    return [link for link in links[:below] if not (is_kind(link) or is_ours(link))]


def is_in(now: Any, mine: Any) -> bool:
    """Whether ``mine`` is what stands there, or lies beneath it."""
    return now is mine or holder_of(now, mine) is not None


def maker_of(wrapper: Any) -> str | None:
    """The package whose code a wrapper runs; None when it cannot be told."""
    function = code_of(wrapper)
    if function is None:
        return None
    if function.__code__.co_filename.startswith("<@beartype("):
        return "beartype"
    return str(function.__globals__.get("__name__")).partition(".")[0]


def callable_of(owner: Any, raw: Any) -> Any:
    """What a replacement may call for ``raw``: itself, or for a method behind a proxy a function that binds it.

    A proxy that is called from a class's namespace does not know whose method it is, and tells its wrapper no instance.
    """
    if raw is NOTHING:
        return None
    if not isinstance(owner, type) or isinstance(raw, (staticmethod, classmethod, property)):
        return raw
    if type(raw) is FunctionType or not hasattr(type(raw), "__get__"):
        return raw

    @functools.wraps(raw)
    def bound(self: Any, *args: Any, **kwargs: Any) -> Any:
        return raw.__get__(self, type(self))(*args, **kwargs)

    return bound


def splice(holder: Any, mine: Any, before: Any) -> bool:
    """Make a wrapper hold ``before`` where it holds ``mine``: in its closure, its defaults, or as a proxy."""
    inner, stock = function_of(mine), function_of(before)
    if type(holder) is FunctionType:
        cells = [cell for cell in holder.__closure__ or () if _content(cell) is inner]
        defaults = holder.__kwdefaults__ or {}
        named = [key for key, value in defaults.items() if value is inner]
        for cell in cells:
            cell.cell_contents = stock
        for key in named:
            defaults[key] = stock
        if cells or named:
            holder.__wrapped__ = stock  # type: ignore[attr-defined]
        return bool(cells or named)
    # Only where __wrapped__ is what the proxy calls: elsewhere (functools.lru_cache) it is a note that changes nothing.
    if not inspect.isdatadescriptor(inspect.getattr_static(type(holder), "__wrapped__", None)):
        return False
    holder.__wrapped__ = before if holder.__wrapped__ is mine else stock
    return True


def _content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return None


def name_of(obj: Any) -> str:
    """What this is called where its code stands: wrappers carry the name of what they wrap."""
    if obj is NOTHING:
        return "nothing"
    held = function_of(obj) if is_kind(obj) else obj
    if is_ours(held):
        return f"{held.__module__}.{held.__qualname__} (patch {getattr(held, MARK)})"
    function = code_of(obj)
    if function is None:
        return f"{getattr(obj, '__module__', None)}.{getattr(obj, '__qualname__', None) or type(obj).__name__}"
    if function.__name__ == function.__code__.co_name:
        return f"{function.__globals__.get('__name__')}.{function.__qualname__}"
    return f"{function.__globals__.get('__name__')}.{function.__code__.co_name}"


def code_of(obj: Any) -> FunctionType | None:
    """The function whose code runs first when this is called: a proxy of wrapt calls what somebody gave it."""
    if type(obj) is not FunctionType:
        obj = function_of(obj) if is_kind(obj) else getattr(obj, "_self_wrapper", None)
        obj = getattr(obj, "__func__", obj)
    return obj if type(obj) is FunctionType else None
