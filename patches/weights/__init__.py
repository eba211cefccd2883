"""Patches of the numbers a model computes with."""
