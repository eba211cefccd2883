"""A reasoning parser that decides by token ids as the engines' own do, without an engine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from engine_overlay.text.spelled_end import Piece

END, START, EOS = 1, 2, 3
PIECES = {END: "</think>", START: "<think>", EOS: "<eos>"}


class Words:
    """A tokenizer with a word per id; unknown words get the next one."""

    eos_token_id = EOS

    def __init__(self) -> None:
        self.words = dict(PIECES)

    def get_vocab(self) -> dict[str, int]:
        return {word: i for i, word in self.words.items()}

    def id(self, word: str) -> int:
        found = self.get_vocab().get(word)
        if found is None:
            found = len(self.words) + 10
            self.words[found] = word
        return found

    def decode(self, ids: Sequence[int], skip_special_tokens: bool = False) -> str:
        return "".join(self.words[i] for i in ids if not (skip_special_tokens and i == EOS))

    def deltas(self, *words: str) -> list[Piece]:
        return [Piece(word, [self.id(word)]) for word in words]


@dataclass
class Call:
    index: int
    id: str | None = None
    type: str | None = None
    function: object | None = None


@dataclass
class Function:
    name: str | None = None
    arguments: str | None = None


@dataclass
class Message:
    reasoning: str | None = None
    content: str | None = None
    tool_calls: list[Call] = field(default_factory=list)


class Base:
    engine_based_streaming = False

    def __init__(self, tokenizer: Words) -> None:
        self.model_tokenizer = tokenizer

    @property
    def vocab(self) -> dict[str, int]:
        return self.model_tokenizer.get_vocab()


class ById(Base):
    """Reasoning up to the id of ``</think>``."""

    start_token, end_token = "<think>", "</think>"
    start_token_id, end_token_id = START, END

    def is_reasoning_end(self, input_ids: Sequence[int]) -> bool:
        return END in input_ids

    def is_reasoning_end_streaming(self, input_ids: Sequence[int], delta_ids: Sequence[int]) -> bool:
        return END in delta_ids

    def extract_content_ids(self, input_ids: list[int]) -> list[int]:
        return input_ids[input_ids.index(END) + 1 :] if END in input_ids else []

    def extract_reasoning_streaming(
        self,
        previous_text: str,
        current_text: str,
        delta_text: str,
        previous_token_ids: Sequence[int],
        current_token_ids: Sequence[int],
        delta_token_ids: Sequence[int],
    ) -> Message | None:
        assert previous_text + delta_text == current_text
        assert [*previous_token_ids, *delta_token_ids] == list(current_token_ids)
        if list(delta_token_ids) in ([START], [END]):
            return None
        if END in previous_token_ids:
            return Message(content=delta_text)
        if END in delta_token_ids:
            reasoning, _, content = delta_text.partition("</think>")
            return Message(reasoning, content or None)
        return Message(delta_text)
