"""A reasoning config made from the parser when the user gave none (with a real engine: test_on_engines)."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from engine_overlay.patches.reasoning import reasoning_config_default as patch
from tests.patches.reasoning import gate

(TARGET,) = (target.path for target in patch.PATCH.targets)


class Tokenizer:
    def encode(self, text: str, add_special_tokens: bool) -> list[int]:
        return [] if text == "cannot" else [1]


class Parser:
    strings = ("<think>", "</think>")

    def __init__(self, tokenizer: Tokenizer) -> None:
        if tokenizer is None:
            raise ValueError("The model tokenizer must be passed")
        self.reasoning_start_str, self.reasoning_end_str = self.strings


class Engine:
    """Stands for the modules of the engine that are asked for."""

    def __init__(self, tokenizer: Tokenizer | None, strings: tuple[str | None, ...] = Parser.strings) -> None:
        parser = type("Chosen", (Parser,), {"strings": strings})
        self.modules = {
            "tokenizers": SimpleNamespace(cached_tokenizer_from_config=lambda model_config: tokenizer),
            "reasoning": SimpleNamespace(
                ReasoningParserManager=SimpleNamespace(get_reasoning_parser={"known": parser}.__getitem__)
            ),
            "config": SimpleNamespace(ReasoningConfig=lambda **strings: strings),
        }

    def module(self, name: str) -> SimpleNamespace:
        return self.modules[name]


def defaulted(engine: Engine, **given: object) -> SimpleNamespace:
    arguments = {"reasoning_config": None, "reasoning_parser": "known", "speculative_config": None} | given
    args, asked = SimpleNamespace(**arguments), []
    stock = {TARGET: lambda self, usage, config: asked.append((self, usage, config))}
    patch.build(engine, stock)[TARGET](args, usage_context="server", model_config="model")
    assert asked == [(args, "server", "model")]
    return args


def test_the_parser_gives_the_config() -> None:
    args = defaulted(Engine(Tokenizer()))
    assert args.reasoning_config == {"reasoning_start_str": "<think>", "reasoning_end_str": "</think>"}


def test_the_config_of_the_user_is_left_alone() -> None:
    own = object()
    assert defaulted(Engine(Tokenizer()), reasoning_config=own).reasoning_config is own


@pytest.mark.parametrize(
    ("engine", "given"),
    [
        pytest.param(Engine(Tokenizer()), {"reasoning_parser": ""}, id="no parser named"),
        pytest.param(Engine(Tokenizer()), {"reasoning_parser": "other"}, id="an unknown parser"),
        pytest.param(Engine(Tokenizer()), {"speculative_config": {"method": "x"}}, id="speculative decoding"),
        pytest.param(Engine(None), {}, id="no tokenizer"),
        pytest.param(Engine(Tokenizer(), (None, "</think>")), {}, id="no start"),
        pytest.param(Engine(Tokenizer(), ("<think>", "")), {}, id="no end"),
        pytest.param(Engine(Tokenizer(), ("<think>", "cannot")), {}, id="a text that cannot be encoded"),
    ],
)
def test_otherwise_it_stays_as_stock(engine: Engine, given: dict[str, object]) -> None:
    assert defaulted(engine, **given).reasoning_config is None


def test_a_changed_default_is_refused_by_name(tmp_path) -> None:
    name = TARGET.rpartition(".")[2]
    changed = f"class EngineArgs:\n    def {name}(self, usage_context, model_config):\n        pass\n"
    seen = gate.ask(tmp_path, patch, "0.19.1", {"engine.arg_utils": changed})
    assert seen.code == "drifted"
    assert name in seen.reason


@pytest.mark.parametrize("version", ["0.18.1", "0.20.0", "0.33.0"])
def test_other_releases_are_not_affected(tmp_path, version: str) -> None:
    assert gate.ask(tmp_path, patch, version, {}).code == "native"
