"""Processes that are forked from one which has imported what they all need, instead of being started anew."""
