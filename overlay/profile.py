"""What a profile wants of an engine, what the engine really has, and who is at the bottom of a difference.

The patch ``effective_values`` reports the values of the final engine config to :func:`tell`; they are logged once
and shown by ``engine-overlay status``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from engine_overlay import verdict
from engine_overlay.log import logger, one_line

Values = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Wish:
    """The value that a profile wants, and the patches that set it; none where every engine has it by default."""

    value: Any
    patches: tuple[str, ...]


WISHES: dict[str, dict[str, Wish]] = {
    "off": {},
    "rl": {
        "logprobs_mode": Wish("processed_logprobs", ("processed_logprobs",)),
        "enable_prefix_caching": Wish(False, ("prefix_caching_off",)),
        "async_scheduling": Wish(False, ("async_scheduling_off",)),
        # Off by default in every release in range; only a user can switch it on.
        "cascade_attention": Wish(False, ()),
        "lm_head_dtype": Wish("float32", ("fp32_head", "fp32_head_native")),
    },
}

_noted: dict[str, Values] = {}
"""The values of the last config of each engine in this process."""

_captured: list[Values] | None = None
"""Where values go instead while a probe looks."""


def tell(engine_name: str, get: Callable[[], Values]) -> None:
    """Keep and log the values of an engine config; the same values are logged once. Never raises."""
    try:
        values = get()
    except Exception as error:
        logger.warning(
            "%s: the effective values cannot be read (%s); the engine is not affected, please report it",
            engine_name,
            one_line(error),
        )
        return
    if _captured is not None:
        _captured.append(values)
    elif _noted.get(engine_name) != values:
        _noted[engine_name] = values
        _log(engine_name, values)


def _log(engine_name: str, values: Values) -> None:
    from engine_overlay import importer, status

    overlay = importer.overlay
    ledger = overlay.ledgers.get(engine_name) if overlay else None
    if overlay is None or ledger is None:
        return
    name = overlay.settings.profile
    logger.info("%s: profile %s: %s", ledger.engine.label, name, spelled(values))
    found = differences(name, values, ledger.verdicts)
    if found:
        logger.warning("%s: profile %s: %s", ledger.engine.label, name, contradiction(found))
    status.write(overlay)


def noted() -> dict[str, Values]:
    """The values by engine, as far as this process made an engine config."""
    return {name: dict(values) for name, values in _noted.items()}


@contextmanager
def capture() -> Iterator[list[Values]]:
    """Give what is told meanwhile to the caller; nothing of it is kept or logged."""
    global _captured
    before, _captured = _captured, []
    try:
        yield _captured
    finally:
        _captured = before


def goes_in(engine_name: str, patch_id: str) -> bool:
    """Whether the patch goes into this engine in every process that imports what it replaces."""
    from engine_overlay import importer

    ledger = importer.overlay.ledgers.get(engine_name) if importer.overlay else None
    decided = ledger.verdicts.get(patch_id) if ledger else None
    return decided is not None and decided.code == verdict.APPLY and patch_id not in ledger.undone


def differences(
    name: str, values: Mapping[str, Any], verdicts: Mapping[str, verdict.Verdict]
) -> list[tuple[str, Any, str]]:
    """(name, value, why) for each value that is not what the profile wants."""
    found = []
    for key, wish in WISHES[name].items():
        if key in values and values[key] != wish.value:
            found.append((key, values[key], _why(wish, verdicts)))
    return found


def _why(wish: Wish, verdicts: Mapping[str, verdict.Verdict]) -> str:
    known = {i: verdicts[i] for i in wish.patches if i in verdicts}
    if not wish.patches or any(v.code == verdict.APPLY for v in known.values()):
        return "set by you or by the model's config"
    # Of several patches for different releases the one that is not native here is the one that counts.
    for i, v in known.items():
        if v.code != verdict.NATIVE:
            return f"{i} is {v.code}"
    return "no patch sets it here"


def contradiction(found: list[tuple[str, Any, str]]) -> str:
    told = ", ".join(f"{key}={value} ({why})" for key, value, why in found)
    return f"not as the profile wants: {told}; it stays so, take it back or read docs/rl-profile.md"


def spelled(values: Mapping[str, Any]) -> str:
    """``name=value, name=value``."""
    return ", ".join(f"{key}={value}" for key, value in values.items())
