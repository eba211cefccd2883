"""A real engine leaking, then the same engine with the overlay: ``make demo``."""
