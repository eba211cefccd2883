"""The tiny model with a tokenizer in which every piece of every public case is a token.

Pieces that some case names as its added tokens are added tokens, the others ordinary ones, and every byte is a token.
A prompt is the first message as it stands.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from engine_overlay.verify.cases import Case, load, piece_bytes
from engine_overlay.verify.tokens import DEFAULT_SPECIAL
from tests.serving.tokens import byte_letters

from . import tiny_model

_TEMPLATE = "{{ messages[0].content }}"
_RECIPE = "1"


class Pieces:
    """The ids of the pieces of all cases."""

    def __init__(self, cases: list[Case]) -> None:
        self.special = list(dict.fromkeys([*DEFAULT_SPECIAL, *(s for case in cases for s in case.get("special", ()))]))
        self.added = list(dict.fromkeys(a for case in cases for a in case["atomic"]))
        marked = {text.encode() for text in (*self.special, *self.added)}
        said = {piece_bytes(p) for case in cases for p in case["token_pieces"]}
        self.ordinary = [bytes([n]) for n in range(256)]
        self.ordinary += sorted(piece for piece in said if len(piece) > 1 and piece not in marked)
        self._ids = {piece: n for n, piece in enumerate(self.ordinary)}
        # In this order the engine's tokenizer numbers them too.
        for text in (*self.special, *self.added):
            self._ids[text.encode()] = len(self._ids)

    def id_of(self, text: str) -> int:
        return self._ids[text.encode()]

    def ids(self, case: Case) -> list[int]:
        return [self._ids[piece_bytes(piece)] for piece in case["token_pieces"]]

    def clashes(self, case: Case) -> list[str]:
        """Ordinary pieces of the case that are added tokens of another one, and so of this tokenizer."""
        own = {*case["atomic"], *case.get("special", DEFAULT_SPECIAL)}
        pieces = {p for p in case["token_pieces"] if isinstance(p, str)}
        return sorted(pieces & {*self.added, *self.special} - own)


def make(folder: Path) -> Path:
    """Write the model to ``folder`` unless it is there for these cases; return ``folder``."""
    pieces = Pieces(load())
    written = json.dumps([_RECIPE, [p.hex() for p in pieces.ordinary], pieces.special, pieces.added])
    wanted = hashlib.sha256(written.encode()).hexdigest()
    stamp = folder / "recipe"
    if stamp.is_file() and stamp.read_text() == wanted:
        return folder
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer = _tokenizer(pieces)
    tokenizer.save_pretrained(folder)
    tiny_model.network(len(tokenizer), tokenizer.eos_token_id).save_pretrained(folder)
    stamp.write_text(wanted)
    return folder


def _tokenizer(pieces: Pieces):  # noqa: ANN202 - transformers is imported late
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    letters = byte_letters()
    vocabulary = {"".join(letters[byte] for byte in piece): n for n, piece in enumerate(pieces.ordinary)}
    core = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    core.add_special_tokens([AddedToken(text, normalized=False, special=True) for text in pieces.special])
    core.add_tokens([AddedToken(text, normalized=False, special=False) for text in pieces.added])
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=core, eos_token=DEFAULT_SPECIAL[-1], pad_token=DEFAULT_SPECIAL[0]
    )
    tokenizer.chat_template = _TEMPLATE
    return tokenizer
