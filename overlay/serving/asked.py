"""What a request asks of the parser: its tools, its tool choice, and whether the model was told to think."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from engine_overlay.serving.halves import Pair
from engine_overlay.text.events import Choice

# Template arguments by which the engines' own parsers know that thinking is off; the others have no such switch.
_SWITCHES = {
    "qwen3": ("enable_thinking",),
    "glm45": ("enable_thinking", "thinking"),
    "kimi_k2": ("thinking",),
    "nemotron_v3": ("enable_thinking",),
    "deepseek_v3": ("thinking", "enable_thinking"),
    "deepseek_v4": ("thinking", "enable_thinking"),
}

ASKED_FOR = frozenset({"deepseek_v3", "deepseek_v4"})
"""Formats whose templates open the reasoning only when they are told to."""


@dataclass(frozen=True, slots=True)
class Asked:
    """One request, as the own parser needs it. ``reasoning`` False: the client does not want to see it.

    ``thinking`` None: the request does not say.
    ``nonempty``: reasoning is the answer when there is no other (Nemotron's ``force_nonempty_content``).
    """

    tools: Iterable[Any] | None
    choice: Choice
    named: str | None
    thinking: bool | None
    reasoning: bool
    nonempty: bool

    @property
    def forced(self) -> bool:
        """Whether the answer has to be a call, so that decoding may have been guided to JSON."""
        return self.choice in (Choice.REQUIRED, Choice.NAMED)


def asked(pair: Pair, request: Any, template: Mapping[str, Any] | None = None) -> Asked:
    """Read a chat or responses request; ``template`` are the arguments of its chat template."""
    tools = getattr(request, "tools", None)
    choice, named = _choice(getattr(request, "tool_choice", None)) if tools else (Choice.AUTO, None)
    if template is None:
        template = getattr(request, "chat_template_kwargs", None)
    template = template or {}
    return Asked(
        tools=tools,
        choice=choice,
        named=named,
        thinking=_thinking(pair, template),
        reasoning=getattr(request, "include_reasoning", True) is not False,
        nonempty=pair.reasoning == "nemotron_v3" and template.get("force_nonempty_content") is True,
    )


def _choice(choice: Any) -> tuple[Choice, str | None]:
    if choice is None or isinstance(choice, str):
        return {"none": Choice.NONE, "required": Choice.REQUIRED}.get(choice or "", Choice.AUTO), None
    name = _get(_get(choice, "function"), "name") or _get(choice, "name")
    return (Choice.NAMED, name) if isinstance(name, str) and name else (Choice.AUTO, None)


def _get(value: Any, name: str) -> Any:
    return value.get(name) if isinstance(value, dict) else getattr(value, name, None)


def _thinking(pair: Pair, template: Mapping[str, Any]) -> bool | None:
    said = [bool(template[name]) for name in _SWITCHES.get(pair.reasoning or "", ()) if template.get(name) is not None]
    return any(said) if said else None
