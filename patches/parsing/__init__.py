"""Patches of the streaming and the full parsers."""
