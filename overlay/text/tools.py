"""The tools of a request, in the shapes of Chat Completions and of Responses, as objects and as dicts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from engine_overlay.text.schema import Schema

Find = Callable[[Any, str], Mapping[str, Any]]
"""An engine's own look-up of a tool's properties: (tools, name) -> properties, empty when there are none."""


def parameters(tools: Iterable[Any] | None, name: str) -> dict[str, Any] | None:
    """The whole schema of a tool's parameters; None when no tool of that name shows one."""
    for tool in tools or ():
        inner = tool.get("function", tool) if isinstance(tool, dict) else getattr(tool, "function", tool)
        if isinstance(inner, dict):
            found, schema = inner.get("name"), inner.get("parameters")
        else:
            found, schema = getattr(inner, "name", None), getattr(inner, "parameters", None)
        if found == name and isinstance(schema, dict):
            return schema
    return None


def schema_of(tools: Iterable[Any] | None, name: str, find: Find) -> Schema | None:
    """The schema of a tool; ``find`` knows the kinds of tools that show theirs in another way (name spaces)."""
    root = parameters(tools, name)
    if root is None:
        properties = find(tools, name)
        root = {"type": "object", "properties": properties} if properties else None
    return Schema(root) if root is not None else None
