"""The markup of a call stays in the content (with real parsers: test_on_engines)."""

from __future__ import annotations

import pytest

from engine_overlay.patches.reasoning import extract_reasoning_tool_events as patch
from tests.patches.reasoning import gate

(TARGET,) = (target.path for target in patch.PATCH.targets)


class Parser:
    """Writes down the mode in which it was asked."""

    def __init__(self, skip_tool_parsing: bool = False, tools: object = ("a tool",)) -> None:
        self.skip_tool_parsing = skip_tool_parsing
        self._tools = tools
        self.modes: list[bool] = []

    def extract_reasoning(self, model_output: str, request: object) -> tuple[str | None, str | None]:
        self.modes.append(self.skip_tool_parsing)
        if model_output == "bad":
            raise ValueError(model_output)
        return model_output, None


def replacement():
    return patch.build(None, {TARGET: Parser.extract_reasoning})[TARGET]


@pytest.mark.parametrize("before", [False, True])
def test_asks_in_the_mode_of_the_adapters_and_leaves_the_mode_as_it_was(before: bool) -> None:
    parser = Parser(before)
    assert replacement()(parser, model_output="text", request=None) == ("text", None)
    assert parser.modes == [True]
    assert parser.skip_tool_parsing is before


def test_without_declared_tools_it_asks_as_before() -> None:
    parser = Parser(tools=None)
    assert replacement()(parser, "text", None) == ("text", None)
    assert parser.modes == [False]


def test_a_raising_parser_keeps_its_mode() -> None:
    parser = Parser()
    with pytest.raises(ValueError, match="bad"):
        replacement()(parser, "bad", None)
    assert parser.skip_tool_parsing is False


def test_an_unknown_body_is_refused_by_name(tmp_path) -> None:
    changed = "class ParserEngine:\n    def extract_reasoning(self, model_output):\n        return 1, 2\n"
    seen = gate.ask(tmp_path, patch, "0.33.0", {"parser.engine.parser_engine": changed})
    assert seen.code == "drifted"
    assert "ParserEngine.extract_reasoning" in seen.reason


@pytest.mark.parametrize(("version", "code"), [("0.23.0", "native"), ("0.24.0", "missing")])
def test_releases_without_a_parser_engine_are_not_affected(tmp_path, version: str, code: str) -> None:
    assert gate.ask(tmp_path, patch, version, {}).code == code
