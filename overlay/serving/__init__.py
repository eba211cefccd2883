"""Puts the own parser of :mod:`engine_overlay.text` behind the serving code of engines that have no parser engine."""
