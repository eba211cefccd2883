"""Which text starts and ends reasoning, from what a parser knows (with real parsers: test_on_engines)."""

from __future__ import annotations

import pytest

from engine_overlay.patches.reasoning import reasoning_strings as patch
from tests.patches.reasoning import gate

START, END = (target.path for target in patch.PATCH.targets)


THINK = ("<think>", "</think>")


class Tokenizer:
    """One token a character, one for each marker, and one for each of the ``merged`` pairs of characters."""

    def __init__(self, markers: tuple[str, ...] = THINK, merged: tuple[str, ...] = ()) -> None:
        self.pieces = sorted((*markers, *merged), key=len, reverse=True)
        self.ids = {piece: 1000 + i for i, piece in enumerate((*markers, *merged))}

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        assert add_special_tokens is False
        out = []
        while text:
            piece = next((p for p in self.pieces if text.startswith(p)), text[0])
            out.append(self.ids.get(piece, ord(text[0])))
            text = text[len(piece) :]
        return out

    def decode(self, ids: list[int], skip_special_tokens: bool = True) -> str:
        assert skip_special_tokens is False
        names = {number: piece for piece, number in self.ids.items()}
        return "".join(names[i] for i in ids)


class Base:
    """As the engine's base class, with the properties that the patch builds."""

    def __init__(self, tokenizer: object) -> None:
        self.model_tokenizer = tokenizer


STOCK = property(lambda self: None)
for path, made in patch.build(None, {START: STOCK, END: STOCK}).items():
    setattr(Base, path.rpartition(".")[2], made)


def strings(parser: Base) -> tuple[str | None, str | None]:
    return parser.reasoning_start_str, parser.reasoning_end_str


def keeping(tokenizer: object, **kept: object) -> Base:
    parser = Base(tokenizer)
    vars(parser).update(kept)
    return parser


@pytest.mark.parametrize("names", patch._KEPT)
def test_the_strings_a_parser_keeps(names: tuple[str, str]) -> None:
    assert strings(keeping(Tokenizer(), **dict(zip(names, THINK, strict=True)))) == THINK


def test_the_tokens_a_parser_looked_up() -> None:
    tokenizer = Tokenizer()
    ids = {f"{n}_token_id": tokenizer.ids[t] for n, t in (("start", "<think>"), ("end", "</think>"))}
    assert strings(keeping(tokenizer, **ids)) == ("<think>", "</think>")


def test_a_parser_with_properties_of_its_own_keeps_them() -> None:
    class Own(Base):
        reasoning_start_str = property(lambda self: "<own>")
        start_token, end_token = "<think>", "</think>"

    assert strings(Own(Tokenizer())) == ("<own>", "</think>")


def test_what_the_class_answered_before_comes_first() -> None:
    made = patch.build(None, {START: property(lambda self: "<before>"), END: STOCK})
    assert made[START].fget(keeping(Tokenizer(), start_token="<think>", end_token="</think>")) == "<before>"


def test_the_table_goes_by_module_and_class_also_for_subclasses() -> None:
    home = {"__module__": "vllm.reasoning.granite_reasoning_parser"}
    granite = type("GraniteReasoningParser", (Base,), home)
    plugin = type("Mine", (granite,), {"__module__": "mine"})
    expected = ("Here is my thought process:", "Here is my response:")
    assert strings(granite(Tokenizer())) == strings(plugin(Tokenizer())) == expected
    assert strings(type("GraniteReasoningParser", (Base,), {})(Tokenizer())) == (None, None)


@pytest.mark.parametrize(
    ("tokenizer", "kept"),
    [
        pytest.param(Tokenizer(), {}, id="it keeps nothing"),
        pytest.param(Tokenizer(), {"start_token": "<think>"}, id="only one of the two"),
        pytest.param(Tokenizer(), {"start_token": "<think>", "end_token": ""}, id="an empty marker"),
        pytest.param(Tokenizer(), {"start_token_id": 1000, "end_token_id": None}, id="a token it lacks"),
        pytest.param(Tokenizer(), {"start_token_id": 1000, "end_token_id": 7}, id="a token without text"),
        pytest.param(
            Tokenizer(markers=()),
            {"start_token": "[T]", "end_token": "[/T]", "start_token_id": 5, "end_token_id": 6},
            id="spelled in other tokens than the parser looks for",
        ),
        pytest.param(
            Tokenizer(markers=(), merged=("\n<",)),
            {"start_token": "<t>", "end_token": "</t>"},
            id="merged into the line before",
        ),
        pytest.param(
            Tokenizer(markers=(), merged=(">\n",)),
            {"start_token": "<t>", "end_token": "</t>"},
            id="merged into the line after",
        ),
        pytest.param(None, {"start_token": THINK[0], "end_token": THINK[1]}, id="no tokenizer"),
        pytest.param(object(), {"start_token": THINK[0], "end_token": THINK[1]}, id="it cannot encode"),
    ],
)
def test_none_stays_where_the_tokens_of_the_text_would_not_be_those_of_the_answer(
    tokenizer: object, kept: dict[str, object]
) -> None:
    assert strings(keeping(tokenizer, **kept)) == (None, None)


def test_a_property_that_raises_is_no_string() -> None:
    class Abstract(Base):
        @property
        def start_token(self) -> str:
            raise NotImplementedError

    assert strings(Abstract(Tokenizer())) == (None, None)


STOCK_PROPERTY = "    @property\n    def {name}(self):\n        {body}\n"


def base_class(body: str) -> str:
    init = (
        "class ReasoningParser:\n    def __init__(self, tokenizer, *args, **kwargs):\n"
        "        self.model_tokenizer = tokenizer\n"
    )
    return init + "".join(
        STOCK_PROPERTY.format(name=f"reasoning_{which}_str", body=body) for which in ("start", "end")
    )


def test_a_base_class_that_answers_itself_is_refused_by_name(tmp_path) -> None:
    changed = base_class("return self.start_token")
    seen = gate.ask(tmp_path, patch, "0.33.0", {"reasoning.abs_reasoning_parsers": changed})
    assert seen.code == "drifted"
    assert "reasoning_start_str" in seen.reason


def test_releases_without_a_thinking_budget_are_not_affected(tmp_path) -> None:
    assert gate.ask(tmp_path, patch, "0.18.1", {}).code == "native"
