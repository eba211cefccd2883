"""What an engine's reasoning parser ends reasoning with, for :class:`engine_overlay.text.end_in_ids.EndInIds`.

The objects are an engine's, told apart by their attributes alone: nothing here imports one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, MutableMapping, Sequence
from typing import Any

from engine_overlay.text import handoff
from engine_overlay.text.end_in_ids import EndInIds, Ids, NamesIn, Vocabulary
from engine_overlay.text.engine_grammar import grammar_of
from engine_overlay.text.grammar import TOOL, Grammar, Role


class Reading:
    """The markers that end the reasoning of a parser, and how they are judged.

    ``confirms``: the grammar is the parser's own, in which the opener of a call is confirmed by the head of the call.
    """

    __slots__ = ("_asked", "confirms", "grammar", "vocabulary")

    def __init__(self, grammar: Grammar, vocabulary: Vocabulary, asked: Callable[..., bool] | None) -> None:
        self.grammar, self.vocabulary, self._asked = grammar, vocabulary, asked
        self.confirms = any(to in TOOL for to in grammar.moves.values())

    def watch(self, names: NamesIn, prompt: Callable[[], Sequence[int]] | None) -> EndInIds:
        """A new stream; with ``prompt`` the parser itself is asked of special tokens."""
        asked, asks = self._asked, None
        if prompt is not None and asked is not None:

            def asks(block: Ids) -> bool:
                return bool(asked([*prompt(), *block], [block[-1]]))

        return EndInIds(self.vocabulary, self.grammar, names, asks)


def reading_of(
    parser: Any, tokenizer: Any, kept: MutableMapping[Any, Vocabulary], end: str | None = None
) -> Reading | None:
    """How ``parser`` ends reasoning; None when it must be left alone, or does not say.

    ``end`` is taken for the end where the parser does not say one. ``kept`` keeps vocabularies between calls.
    """
    inner = getattr(parser, "_parser", None)
    if hasattr(inner, "extract_reasoning_streaming"):
        return reading_of(inner, tokenizer, kept, end)
    config = getattr(getattr(parser, "_parser_engine", None), "parser_engine_config", None)
    if config is not None:
        grammar = grammar_of(config)
        ends = {m for (role, m), to in grammar.moves.items() if (role, to) == (Role.REASONING, Role.CONTENT)}
        openers = {m for (role, m), to in grammar.moves.items() if role is Role.REASONING and to in TOOL}
        if not grammar.plain:
            grammar, openers = _only(ends), set()
        markers: Iterable[str] = ends | openers
    else:
        found = handoff.markers(parser) if parser is not None else None
        text = found[0].text if found else end
        grammar = _only({text} if text else ())
        markers = {text} if text else ()
    markers = tuple(sorted(marker for marker in markers if marker.strip()))
    if not markers:
        return None
    if markers not in kept:
        kept[markers] = Vocabulary(tokenizer, markers)
    return Reading(grammar, kept[markers], getattr(parser, "is_reasoning_end_streaming", None))


def _only(ends: Iterable[str]) -> Grammar:
    moves = {(Role.REASONING, end): Role.CONTENT for end in ends}
    return Grammar(moves, frozenset(moves), (), False)
