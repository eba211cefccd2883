"""The ENGINE_OVERLAY* environment variables, read once; a typo is answered with the nearest known word."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

PREFIX = "ENGINE_OVERLAY"

CHOICES = {
    "ENGINE_OVERLAY": ("on", "off", "strict"),
    "ENGINE_OVERLAY_UNTESTED": ("match", "refuse", "apply"),
    "ENGINE_OVERLAY_LOG": ("quiet", "warning", "info", "debug"),
    "ENGINE_OVERLAY_PROFILE": ("off", "rl"),
}
"""Variables that take one word; the first is the default, except that LOG starts at ``info``."""

PROFILES: dict[str, tuple[str, ...]] = {
    "off": (),
    "rl": (
        "processed_logprobs",
        "prefix_caching_off",
        "async_scheduling_off",
        "fp32_head",
        "fp32_head_native",
        "effective_values",
    ),
}
"""Ids of the patches, off by default, that a profile asks for; each can be left out by ENGINE_OVERLAY_DISABLE."""

ID_LISTS = ("ENGINE_OVERLAY_DISABLE", "ENGINE_OVERLAY_ENABLE", "ENGINE_OVERLAY_ONLY")
STATE_DIR = "ENGINE_OVERLAY_STATE_DIR"
PROXY = "ENGINE_OVERLAY_PROXY"
VARIABLES = {
    "ENGINE_OVERLAY": (
        "on (default), off: the stock engine, strict: refuse to start when a patch is refused or requests would be "
        "answered around it"
    ),
    "ENGINE_OVERLAY_DISABLE": (
        "ids of patches to leave out, separated by commas, with those that need them; wins over the other lists"
    ),
    "ENGINE_OVERLAY_ENABLE": "ids of patches to add that are off by default",
    "ENGINE_OVERLAY_ONLY": "ids of the only patches to consider",
    "ENGINE_OVERLAY_PROFILE": (
        "rl: the defaults that reinforcement learning needs, where you gave no value of your own; off (default)"
    ),
    "ENGINE_OVERLAY_UNTESTED": (
        "on a release newer than a patch was tested on: match (default) applies it when every body is known, "
        "refuse never, apply always"
    ),
    "ENGINE_OVERLAY_LOG": "quiet, warning, info (default), debug",
    "ENGINE_OVERLAY_STATE_DIR": "folder in which each process keeps its status file",
    "ENGINE_OVERLAY_PROXY": "options of the stray-tag filter as `--middleware`, such as thinking_token_budget=2048",
}
"""Every variable with its meaning; the table in the README is generated from this."""

_SYNONYMS = {"1": "on", "true": "on", "yes": "on", "": "on", "0": "off", "false": "off", "no": "off"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What the user asked for. ``problems`` are the lines to show for what could not be understood."""

    mode: str = "on"
    untested: str = "match"
    log: str = "info"
    disable: tuple[str, ...] = ()
    enable: tuple[str, ...] = ()
    only: tuple[str, ...] = ()
    profile: str = "off"
    state_dir: Path | None = None
    problems: tuple[str, ...] = ()

    @property
    def named(self) -> frozenset[str]:
        """Ids that the user asked for, by name or by a profile, so that their refusal is always an error."""
        asked = frozenset(self.enable) | frozenset(self.only) | frozenset(PROFILES[self.profile])
        return asked - frozenset(self.disable)


def read(environ: Mapping[str, str] = os.environ) -> Settings:
    """Read the settings from ``environ``. Never raises: what is not understood becomes a problem line."""
    problems: list[str] = []
    for name in sorted(environ):
        if name.startswith(PREFIX) and name not in VARIABLES:
            problems.append(f"{name}: unknown variable{suggest(name, VARIABLES)}; it is ignored")
    word = {name: _choice(name, environ, problems) for name in CHOICES}
    ids = {name: _ids(environ.get(name, "")) for name in ID_LISTS}
    disable, enable, only = (ids[name] for name in ID_LISTS)
    for name, wanted in (("ENGINE_OVERLAY_ENABLE", enable), ("ENGINE_OVERLAY_ONLY", only)):
        for both in sorted(set(wanted) & set(disable)):
            problems.append(
                f"{name} and ENGINE_OVERLAY_DISABLE both name {both}; it stays out, remove it from one of them"
            )
    if only:
        for lost in sorted(set(enable) - set(only)):
            problems.append(
                f"ENGINE_OVERLAY_ENABLE names {lost}, but ENGINE_OVERLAY_ONLY does not; it stays out, add it there too"
            )
        outside = sorted(set(PROFILES[word["ENGINE_OVERLAY_PROFILE"]]) - set(only) - set(disable))
        if outside:
            problems.append(
                f"ENGINE_OVERLAY_PROFILE={word['ENGINE_OVERLAY_PROFILE']} has patches that ENGINE_OVERLAY_ONLY does "
                f"not name ({', '.join(outside)}); they stay out, add them there too"
            )
    folder = environ.get(STATE_DIR, "").strip()
    return Settings(
        mode=word["ENGINE_OVERLAY"],
        untested=word["ENGINE_OVERLAY_UNTESTED"],
        log=word["ENGINE_OVERLAY_LOG"],
        disable=disable,
        enable=enable,
        only=only,
        profile=word["ENGINE_OVERLAY_PROFILE"],
        state_dir=Path(folder) if folder else None,
        problems=tuple(problems),
    )


def normal_id(text: str) -> str:
    """An id as the catalog spells it: lower case, ``_`` for ``-``."""
    return text.strip().lower().replace("-", "_")


def nearest(word: str, known: Iterable[str]) -> str | None:
    """The known word most like ``word``, or None when nothing is alike."""
    found = difflib.get_close_matches(word, list(known), n=1, cutoff=0.6)
    return found[0] if found else None


def suggest(word: str, known: Iterable[str]) -> str:
    """``", did you mean X?"``, or nothing."""
    guess = nearest(word, known)
    return f", did you mean {guess}?" if guess else ""


def _ids(text: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(i for part in re.split(r"[,\s]+", text) if (i := normal_id(part))))


def _choice(name: str, environ: Mapping[str, str], problems: list[str]) -> str:
    choices = CHOICES[name]
    default = "info" if name == "ENGINE_OVERLAY_LOG" else choices[0]
    raw = environ.get(name)
    if raw is None or not raw.strip():
        return default
    value = raw.strip().lower()
    if name == PREFIX:
        value = _SYNONYMS.get(value, value)
    if value in choices:
        return value
    known = ", ".join(choices)
    guess = suggest(value, choices)
    if name == PREFIX:
        # A main switch that cannot be read may have meant "off": the stock engine is the safe side.
        problems.append(f"{name}={raw!r} is none of {known}{guess}; the stock engine is served, set it right")
        return "off"
    problems.append(f"{name}={raw!r} is none of {known}{guess}; {default} is used")
    return default
