"""The built-in patches: one file each, in a folder per area."""
