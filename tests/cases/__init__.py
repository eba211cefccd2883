"""The public cases: what models wrote, by token, and the right answer. Installed as engine_overlay.verify.data."""
