"""Programs to read and to run; nothing of this is installed."""
