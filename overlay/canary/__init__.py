"""``engine-overlay canary``: ask any OpenAI-compatible server as its users do, and tell what is wrong with its answers.

The package knows HTTP and what answers must look like; it imports no engine, and no part of the overlay that patches.
"""

INSTALL = "run \"pip install 'engine-overlay[canary]'\""
"""The next step where httpx or matplotlib is missing."""
