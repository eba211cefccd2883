"""What holds for all tests: which of them only a run of everything has."""

from __future__ import annotations

import os

import pytest

from engine_overlay.verify.releases import Release

EVERY = os.environ.get("OVERLAY_RELEASES", "") == "all"


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what is marked ``every``, and the releases that are like the one before, see tests/matrix/spread.py."""
    left = [] if EVERY else [item for item in items if item.get_closest_marker("every") or _is_of_another(item)]
    if left:
        config.hook.pytest_deselected(items=left)
        items[:] = [item for item in items if item not in left]


def _is_of_another(item: pytest.Item) -> bool:
    release = item.callspec.params.get("release") if hasattr(item, "callspec") else None
    if not isinstance(release, Release):
        return False
    from tests.matrix import spread

    return release not in spread.chosen()
