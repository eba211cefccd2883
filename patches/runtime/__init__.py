"""Patches of how an engine runs: caching, scheduling, and what it says of itself."""
