"""Rollouts of the released engine on this CPU against a transformers trainer. ``make test-live-rl``."""
