"""Rollouts and trainers: parity numbers on arrays (``metrics``) and the weight update under way (``inflight_update``).

``metrics`` needs numpy, ``report`` matplotlib too: ``pip install 'engine-overlay[rl]'``. ``trainer`` uses the torch
and transformers that come with the engine. Nothing here knows an engine's modules.
"""

from __future__ import annotations

from engine_overlay.rl.inflight import Call, Update, inflight_update

__all__ = ["Call", "Update", "inflight_update"]
