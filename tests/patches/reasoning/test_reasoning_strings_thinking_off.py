"""A parser built with thinking off answers as with thinking on (with real parsers: test_on_engines)."""

from __future__ import annotations

import pytest

from engine_overlay.patches.reasoning import reasoning_strings_thinking_off as patch
from tests.patches.reasoning import gate

START, END = (target.path for target in patch.PATCH.targets)


class IdentityReasoningParser:
    reasoning_start_str = reasoning_end_str = None


class Thinking:
    reasoning_start_str, reasoning_end_str = "<think>", "</think>"


class Old:
    """The thinking parser of a release without the two properties."""


def delegating(thinking: type, with_stock: bool = True) -> type:
    """A class that chooses between two parsers, with the properties that the patch builds."""

    class Delegating:
        def __init__(self, tokenizer: object, **kwargs: object) -> None:
            on = (kwargs.get("chat_template_kwargs") or {}).get("thinking", False)
            if on and tokenizer == "no such tokens":
                raise RuntimeError("could not locate think start/end tokens")
            self.model_tokenizer = tokenizer
            self._parser = thinking() if on else IdentityReasoningParser()

    stock = {
        START: property(lambda self: self._parser.reasoning_start_str),
        END: property(lambda self: self._parser.reasoning_end_str),
    }
    for path, made in patch.build(None, stock if with_stock else dict.fromkeys(stock)).items():
        setattr(Delegating, path.rpartition(".")[2], made)
    return Delegating


def strings(parser: object) -> tuple[str | None, str | None]:
    return parser.reasoning_start_str, parser.reasoning_end_str


@pytest.mark.parametrize("with_stock", [True, False])
@pytest.mark.parametrize("kwargs", [{}, {"chat_template_kwargs": {"thinking": True}}])
def test_thinking_on_or_off_gives_the_same_strings(with_stock: bool, kwargs: dict[str, object]) -> None:
    parser = delegating(Thinking, with_stock)("any tokenizer", **kwargs)
    chosen = type(parser._parser)
    assert strings(parser) == ("<think>", "</think>")
    assert type(parser._parser) is chosen


def test_none_stays_when_the_vocabulary_has_no_such_tokens() -> None:
    assert strings(delegating(Thinking)("no such tokens")) == (None, None)


def test_none_stays_when_the_thinking_parser_has_none() -> None:
    assert strings(delegating(Old, with_stock=False)("any tokenizer")) == (None, None)


def test_a_changed_choice_is_refused_by_name(tmp_path) -> None:
    changed = (
        "class DeepSeekV3ReasoningParser:\n"
        "    def __init__(self, tokenizer):\n        self._parser = None\n"
        "    @property\n    def reasoning_start_str(self) -> str | None:\n"
        "        return self._parser.reasoning_start_str\n"
        "    @property\n    def reasoning_end_str(self) -> str | None:\n"
        "        return self._parser.reasoning_end_str\n"
    )
    module = {"reasoning.deepseek_v3_reasoning_parser": changed}
    # The patch needs reasoning_strings, which is not in this catalogue; its own bodies are judged first.
    seen = gate.ask(tmp_path, patch, "0.33.0", module)
    assert seen.code == "drifted"
    assert "DeepSeekV3ReasoningParser.__init__" in seen.reason
