"""``prefix_caching_off`` on arguments as the engines have them; on real releases in test_rl_profile."""

from __future__ import annotations

from typing import Any

import pytest

from engine_overlay.patches.runtime import prefix_caching_off
from tests.patches.runtime import defaulted
from tests.patches.runtime.defaulted import OwnScheduler, PhraseScheduler


def of(**given: Any) -> Any:
    return defaulted.defaulted(prefix_caching_off, **given)


@pytest.mark.parametrize("given", [True, False])
def test_what_the_user_set_stays(given: bool) -> None:
    assert of(enable_prefix_caching=given).enable_prefix_caching is given


def test_what_nobody_set_is_off_and_the_other_value_is_left_alone() -> None:
    assert of().enable_prefix_caching is False
    assert of().async_scheduling is None


@pytest.mark.parametrize("chosen", [PhraseScheduler, f"{defaulted.__name__}.PhraseScheduler"])
def test_a_scheduler_that_needs_it_keeps_it(chosen: Any) -> None:
    assert of(scheduler_cls=chosen).enable_prefix_caching is True


@pytest.mark.parametrize("chosen", [OwnScheduler, f"{defaulted.__name__}.OwnScheduler", "no.such.Scheduler", "Bare"])
def test_any_other_scheduler_of_the_user_does_not(chosen: Any) -> None:
    assert of(scheduler_cls=chosen).enable_prefix_caching is False
