"""A tokenizer with exactly the tokens of one case: one id for each distinct piece, decoding is exact."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

DEFAULT_SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
_FIRST_ID = 100
_SIZE = 10_000


class CaseTokenizer:
    """What the engines' parsers ask of a tokenizer; ids of texts that no case names are made one byte at a
    time.

    ``special`` are the control tokens (the last one ends the answer), ``added`` the model's markers.
    """

    is_fast = True
    name_or_path = "case"
    vocab_size = _SIZE
    max_token_id = _SIZE
    bos_token_id = None
    pad_token_id = 0

    def __init__(self, special: Sequence[str], added: Sequence[str], pieces: Iterable[bytes]) -> None:
        self._ids: dict[bytes, int] = {}
        self._pieces: dict[int, bytes] = {}
        self._markers = sorted({*special, *added}, key=len, reverse=True)
        for piece in (*(text.encode() for text in (*special, *added)), *pieces):
            self.id_of(piece)
        self.all_special_tokens = list(special)
        self.all_special_ids = [self.id_of(text.encode()) for text in special]
        self.eos_token = special[-1] if special else None
        self.eos_token_id = self.all_special_ids[-1] if special else None

    def id_of(self, piece: bytes) -> int:
        token_id = self._ids.get(piece)
        if token_id is None:
            token_id = self._ids[piece] = _FIRST_ID + len(self._ids)
            self._pieces[token_id] = piece
        return token_id

    def __len__(self) -> int:
        return _SIZE

    def get_vocab(self) -> dict[str, int]:
        return {piece.decode("utf-8", "replace"): token_id for piece, token_id in self._ids.items()}

    vocab = property(get_vocab)

    def get_added_vocab(self) -> dict[str, int]:
        return {text: self.id_of(text.encode()) for text in self._markers}

    def encode(self, text: str, add_special_tokens: bool = False, **_: object) -> list[int]:
        ids: list[int] = []
        while text:
            marker = next((m for m in self._markers if text.startswith(m)), None)
            if marker is None:
                ids.extend(self.id_of(bytes([byte])) for byte in text[0].encode())
                text = text[1:]
            else:
                ids.append(self.id_of(marker.encode()))
                text = text[len(marker) :]
        return ids

    def __call__(self, text: str, **_: object) -> dict[str, list[int]]:
        return {"input_ids": self.encode(text)}

    def tokenize(self, text: str, **_: object) -> list[str]:
        return self.convert_ids_to_tokens(self.encode(text))

    def decode(self, ids: int | Sequence[int], skip_special_tokens: bool = False, **_: object) -> str:
        ids = [ids] if isinstance(ids, int) else ids
        skipped = self.all_special_ids if skip_special_tokens else ()
        return b"".join(self._pieces[i] for i in ids if i not in skipped).decode("utf-8", "replace")

    def convert_ids_to_tokens(self, ids: Sequence[int], **_: object) -> list[str]:
        return [self._pieces[i].decode("utf-8", "replace") for i in ids]

    def convert_tokens_to_ids(self, tokens: str | Sequence[str]) -> int | list[int]:
        if isinstance(tokens, str):
            return self._ids.get(tokens.encode(), 0)
        return [self._ids.get(token.encode(), 0) for token in tokens]

    def convert_tokens_to_string(self, tokens: Sequence[str]) -> str:
        return "".join(tokens)

    def num_special_tokens_to_add(self, *_: object) -> int:
        return 0
