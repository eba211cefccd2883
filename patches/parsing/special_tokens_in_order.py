"""A special token is found at its own place in the text, not at a later mention of it.

Symptom: an answer whose real ``</think>`` or ``<tool_call>`` comes in one delta with a later mention of the same tag
is cut at the mention, when the delta also holds a character of several tokens (an emoji, CJK) or a token that decodes
differently on its own.

Cause: ``TokenIDScanner`` decodes the tokens one by one. Where that does not give the delta's text, it looks for each
special token from the right, and takes the last place where its text stands.

Change: the tokens between two special tokens are decoded together, the mentions in them are counted, and each special
token takes the place that this leaves for it. Where the text does not have as many, the engine's own way is used.

Risk: none known; deltas whose tokens decode to their text are not touched.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from engine_overlay.engines import Engine
from engine_overlay.record import Finding, Outcome, Patch, Range, Target
from engine_overlay.text import places

_SCANNER = "parser.engine.token_id_scanner:TokenIDScanner"
_TARGET = f"{_SCANNER}._recover_holdback_text"

PATCH = Patch(
    id="special_tokens_in_order",
    engines={"vllm": Range("0.24.0", "0.33.0"), "aphrodite": Range("0.22.0", "0.24.1")},
    targets=(Target(path=_TARGET, bodies=("98ce97bd6df3",)),),
    reads=(
        Target(path="parser.engine.token_id_scanner:TextChunk", bodies=("d32a0619cba9", "dc920b72152a")),
        Target(path="parser.engine.token_id_scanner:PreLexedTerminal", bodies=("a40ebbbbf2d3",)),
        Target(path=f"{_SCANNER}._join_decoded_text", bodies=("d9f040bf3170",)),
    ),
    upstream=(),
    relationship="different approach",
    introduced_in={"vllm": "0.24.0", "aphrodite": "0.22.0"},
    fixed_in={"vllm": None, "aphrodite": None},
    superseded_by=None,
    group=None,
    requires=(),
    conflicts=(),
    after=(),
    default=True,
    default_reason="only deltas are touched whose special tokens the engine has to search for",
    scope=("server",),
    native_alternative=None,
    remove_when="TokenIDScanner decodes the tokens between two special tokens together",
)


def build(engine: Engine, originals: Mapping[str, Any]) -> Mapping[str, Any]:
    """A wrapper that finds the places itself, or leaves the delta to the original."""
    original = originals[_TARGET]
    module = engine.module("parser.engine.token_id_scanner")
    drop = getattr(module, "DROP_TERMINAL", "__DROP__")
    chunk, special = module.TextChunk, module.PreLexedTerminal

    def parts_of(self: Any, results: Sequence[Any]) -> list[tuple[str, bool]]:
        """(text, whether it is a special token): what stands between special tokens is decoded together."""
        parts: list[tuple[str, bool]] = []
        run: list[int] = []
        # Laid ready by spelled_markers; without it the tokens are taken as the engine decoded them, one by one.
        for token_id in getattr(self, "_overlay_ids", ()):
            if token_id not in self.token_id_to_terminal:
                run.append(token_id)
                continue
            parts += [(self.tokenizer.decode(run), False)] if run else []
            parts.append((self._decode_token(token_id), True))
            run = []
        parts += [(self.tokenizer.decode(run), False)] if run else []
        markers = [r.text for r in results if isinstance(r, special)]
        shown = sum(special for _, special in parts)
        while shown > len(markers):
            shown -= parts.pop()[1]
        if [text for text, special in parts if special] != markers:
            parts = []
        return parts or [(r.text, isinstance(r, special)) for r in results]

    def recover(self: Any, delta_text: str, results: Sequence[Any]) -> Sequence[Any]:
        kept = list(results)
        while kept and getattr(kept[-1], "terminal", None) == drop and not delta_text.endswith(kept[-1].text):
            # The end token, whose text the detokenizer leaves out.
            kept.pop()
        if kept and len(kept) < len(results):
            return recover(self, delta_text, kept)
        decoded = self._join_decoded_text(results)
        if not decoded or delta_text.find(decoded) >= 0:
            return original(self, delta_text, results)
        found = places.of_markers(parts_of(self, results), delta_text)
        if not found:
            return original(self, delta_text, results)
        items: list[Any] = []
        waiting: Any = None
        consumed, at = 0, iter(found)

        def text_until(end: int) -> None:
            nonlocal waiting, consumed
            if end > consumed or waiting is not None:
                text = delta_text[consumed:end]
                items.append(chunk(text) if waiting is None else dataclasses.replace(waiting, text=text))
            waiting, consumed = None, end

        for result in results:
            if not isinstance(result, special):
                waiting = result
                continue
            text_until(next(at))
            items.append(result)
            consumed += len(result.text)
        text_until(len(delta_text))
        return items

    return {_TARGET: recover}


class _Tokenizer:
    """An emoji of two tokens, which decode to nothing readable on their own, and two markers."""

    def decode(self, ids: Sequence[int], **_: Any) -> str:
        return "".join({1: "</think>", 2: "\ufffd", 3: "\ufffd"}.get(i) or chr(i) for i in ids)


def probe(engine: Engine) -> Finding:
    """Scan a delta in which an emoji stands between the real ``</think>`` and a spelled one."""
    if engine.source("parser.engine.token_id_scanner") is None:
        return Finding(Outcome.ABSENT, "this release has no parser engine")
    module = engine.module("parser.engine.token_id_scanner")
    scanner = module.TokenIDScanner({1: "THINK_END"}, _Tokenizer())
    mention = "</think>"
    items = scanner.scan(f"a</think>\U0001f600{mention}", [ord("a"), 1, 2, 3, *map(ord, mention)])
    seen = [(type(item).__name__, item.text) for item in items]
    right = [("TextChunk", "a"), ("PreLexedTerminal", mention), ("TextChunk", f"\U0001f600{mention}")]
    evidence = f"the text is cut into {seen}"
    if seen == right:
        return Finding(Outcome.ABSENT, evidence)
    if [kind for kind, _ in seen] == ["TextChunk", "PreLexedTerminal"]:
        return Finding(Outcome.PRESENT, evidence)
    return Finding(Outcome.UNKNOWN, evidence)
