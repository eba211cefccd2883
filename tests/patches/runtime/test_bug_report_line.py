"""The section of the overlay without an engine; the patch itself is tested with the metrics, in the same processes."""

from __future__ import annotations

from engine_overlay import importer
from engine_overlay.patches.runtime import bug_report_line


def test_the_section_speaks_also_where_nothing_is_patched(monkeypatch):
    monkeypatch.setattr(importer, "overlay", None)
    text = bug_report_line.section()
    assert "Patches of this engine       : none" in text and "(way in: None)" in text
