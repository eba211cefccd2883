"""engine-overlay: hot-patches known faults of vLLM and Aphrodite Engine while they are being imported.

Importing this package does nothing; see :mod:`engine_overlay.importer` for the way in.
"""

__version__ = "0.1.0"
