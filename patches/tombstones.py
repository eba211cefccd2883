"""Retired patches: a setting that still names one gets the reason and the release that fixed the fault."""

from __future__ import annotations

from engine_overlay.record import Tombstone

TOMBSTONES: tuple[Tombstone, ...] = ()
