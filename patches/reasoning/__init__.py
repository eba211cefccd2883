"""Patches of how reasoning is told from the answer."""
