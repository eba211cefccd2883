"""The right answers of the public cases, many of them about tags, are no findings."""

from __future__ import annotations

import json
from typing import Any

import pytest

from engine_overlay.canary.answer import Answer
from engine_overlay.canary.questions import Question
from engine_overlay.verify import cases
from tests.canary.made import answer, kinds

CASES = cases.load()


def _question(case: cases.Case) -> Question:
    fields = cases.request_fields(case)
    tools = fields.pop("tools", None) or ()
    messages = ({"role": "user", "content": "Go on."},)
    return Question(check="own", name=case["id"], messages=messages, tools=tools, fields=fields, about_tags=True)


def _answer(expected: dict[str, Any]) -> Answer:
    calls = tuple((call["name"], _text(call["arguments"])) for call in expected.get("tool_calls") or ())
    return answer(
        expected.get("content") or "", expected.get("reasoning") or "", calls, expected.get("finish_reason")
    )


def _text(arguments: Any) -> str:
    return arguments if isinstance(arguments, str) else json.dumps(arguments)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["id"])
def test_what_a_case_expects_is_no_finding(case: cases.Case) -> None:
    assert kinds(_question(case), _answer(case["expect"])) == []
