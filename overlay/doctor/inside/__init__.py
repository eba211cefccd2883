"""Runs in a process of its own with an engine in it, and answers the doctor's questions; see ``__main__``."""
