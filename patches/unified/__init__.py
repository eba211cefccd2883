"""Patches that serve models through the own parser on releases that have no parser engine."""
