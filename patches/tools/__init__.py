"""Patches of how tool calls are read."""
