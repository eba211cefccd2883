"""A structured output manager and a request as the patches see them, around a real tokenizer class of letters."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

END = "</think>"


class Tokenizer:
    """Every piece that is asked for is a token; ``</think>`` is a special one."""

    def __init__(self) -> None:
        self.pieces: list[str] = [END]

    def id_of(self, piece: str) -> int:
        if piece not in self.pieces:
            self.pieces.append(piece)
        return self.pieces.index(piece)

    def get_added_vocab(self) -> dict[str, int]:
        return {END: 0}

    def get_vocab(self) -> dict[str, int]:
        return {piece: n for n, piece in enumerate(self.pieces)}

    def decode(self, ids: Sequence[int], skip_special_tokens: bool = False) -> str:
        return "".join(self.pieces[i] for i in ids)

    def encode(self, text: str, add_special_tokens: bool = False) -> list[int]:
        return [self.id_of(letter) for letter in text]


class Reasoner:
    """A parser that looks at ids, as most do."""

    end_token, end_token_id = END, 0

    def is_reasoning_end_streaming(self, input_ids: Sequence[int], delta_ids: Sequence[int]) -> bool:
        return 0 in list(delta_ids)


class Manager:
    """Has what the patches use of a manager; ``wants`` says which text its grammar accepts."""

    def __init__(self, wants: Callable[[str], bool] = lambda text: True) -> None:
        self.tokenizer, self.reasoner, self.enable_in_reasoning = Tokenizer(), Reasoner(), False
        self.stock_says, self.stock_calls, self.wants = False, 0, wants
        self.ids: list[int] = []
        self.structured = SimpleNamespace(
            reasoning_ended=False, grammar=self, structured_output_key=("json", "{}"), reasoner=None
        )
        self.request = SimpleNamespace(
            request_id="r", prompt_token_ids=[], output_token_ids=[], structured_output_request=self.structured
        )

    def _get_reasoner(self, request: Any) -> Reasoner:
        return self.reasoner

    def say(self, *pieces: str) -> list[int]:
        ids = [self.tokenizer.id_of(piece) for piece in pieces]
        self.request.output_token_ids += ids
        return ids

    @property
    def taken(self) -> str:
        return self.tokenizer.decode(self.ids)

    # The grammar.

    def validate_tokens(self, tokens: list[int]) -> list[int]:
        return tokens if self.wants(self.tokenizer.decode(tokens)) else []

    def accept_tokens(self, request_id: str, tokens: list[int]) -> bool:
        self.ids += tokens
        return True


def asked() -> list[Any]:
    """(steps, what the grammar has taken after the last)."""
    return [
        pytest.param([("Hm.",), ("</",), ("think",), (">",)], "", id="one by one"),
        pytest.param([("Hm.",), ("</",), ("think",), (">{",)], "{", id="in a token that says more"),
        pytest.param([("Hm.", "</", "think", ">", "{", "}")], "{}", id="several tokens a step"),
        pytest.param([("Hm", ".</"), ("think", ">{", "}")], "{}", id="over two steps"),
        pytest.param([("I think ",), ("</", "think"), (">",), ("{",)], "{", id="known a token later"),
    ]
