"""Patches of the log-probabilities that an engine returns."""
