"""Made-up answers through the own parser: right in every part, and the same streaming and full."""

from __future__ import annotations

import json

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings

from engine_overlay.text.formats import STOCK_CALLS, STOCK_REASONING
from tests.properties import judge
from tests.properties.dialogues import dialogues
from tests.properties.formats import FORMATS
from tests.text import own

EXAMPLES = 700
COVERED = [
    name
    for name, form in FORMATS.items()
    if form.reasoning_parser in (None, *STOCK_REASONING) and form.tool_parser in (None, *STOCK_CALLS)
]


def test_every_format_of_the_own_parser_has_dialogues():
    found = {STOCK_CALLS.get(FORMATS[name].tool_parser) for name in COVERED}
    assert found - {None} == set(STOCK_CALLS.values())


@pytest.mark.parametrize("name", COVERED)
def test_dialogues(name):
    @seed(0)
    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
        phases=(Phase.generate, Phase.shrink),
    )
    @given(dialogues(name))
    def check(made):
        case, cuts = made
        run = own.Run(case)
        found = judge.verdict(case, {"stream": run.stream(cuts), "full": run.full()})
        assert not found, json.dumps({**found, "case": case}, ensure_ascii=False, indent=1)

    check()
