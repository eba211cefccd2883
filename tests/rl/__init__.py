"""Parity numbers, the weight update under way and the report, without an engine."""
