"""What holds for all tests."""

from __future__ import annotations

import pytest

from engine_overlay.verify.releases import Release


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the tests of releases that only a run of all of them has; see :mod:`tests.matrix.spread`."""
    asked = {item: item.callspec.params.get("release") for item in items if hasattr(item, "callspec")}
    if not any(isinstance(release, Release) for release in asked.values()):
        return
    from tests.matrix import spread

    left = [item for item, release in asked.items() if isinstance(release, Release) and release not in spread.chosen()]
    config.hook.pytest_deselected(items=left)
    items[:] = [item for item in items if item not in left]
