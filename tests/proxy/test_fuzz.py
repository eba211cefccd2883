"""Some seconds of :mod:`tests.proxy.fuzz`; an hour by hand."""

from __future__ import annotations

import os
import tracemalloc

from tests.proxy.fuzz import search

SECONDS = float(os.environ.get("PROXY_FUZZ_SECONDS", "5"))


def test_nothing_that_a_server_sends_breaks_the_filter() -> None:
    assert search(SECONDS, 1) > 100


def test_memory_stays_as_it_is() -> None:
    search(1, 1)
    tracemalloc.start()
    try:
        search(1, 1)
        before = tracemalloc.get_traced_memory()[0]
        search(2, 10_000)
        assert tracemalloc.get_traced_memory()[0] - before < 2e6
    finally:
        tracemalloc.stop()
