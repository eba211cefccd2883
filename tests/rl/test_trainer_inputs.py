"""The parts of the trainer's side that need no torch."""

from __future__ import annotations

import math

import pytest

from engine_overlay.rl.trainer import Sampling


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"temperature": -0.1}, "temperature"),
        ({"temperature": math.nan}, "temperature"),
        ({"top_p": 0.0}, "top-p"),
        ({"top_p": 1.1}, "top-p"),
        ({"top_k": -2}, "top-k"),
    ],
)
def test_sampling_that_no_engine_takes_is_refused(fields: dict, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Sampling(**fields)


def test_what_filters() -> None:
    assert Sampling(top_p=0.9).filters and Sampling(top_k=5).filters
    assert not Sampling(temperature=0.7).filters and not Sampling(top_k=0).filters
