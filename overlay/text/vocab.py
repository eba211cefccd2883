"""What a tokenizer knows of a format: the ids of its markers, how ids become text, and where in it markers stand."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from engine_overlay.text.formats import Format

_LOST = 2
"""Characters of a piece that decoding it alone may add."""


class Vocab:
    """What a tokenizer knows of a format: the ids of its markers, and how ids become text.

    ``decode``: ids -> text, special tokens included. ``special_ids``: tokens that some texts leave out.
    """

    __slots__ = ("decode", "ids", "markers", "special_ids")

    def __init__(
        self,
        form: Format,
        get_vocab: Callable[[], Mapping[str, int]],
        decode: Callable[[Sequence[int]], str],
        special_ids: Iterable[int] = (),
    ) -> None:
        known = get_vocab()
        self.ids = {marker: known[marker] for marker in form.tokens if marker in known}
        self.markers = {token: marker for marker, token in self.ids.items()}
        self.decode = decode
        self.special_ids = frozenset(special_ids)

    def shown(self, ids: list[int], skip_special: bool) -> str:
        """The text of ``ids``, with or without special tokens."""
        if skip_special:
            ids = [i for i in ids if i not in self.special_ids]
        return self.decode(ids) if ids else ""

    def placed(self, text: str, ids: Sequence[int]) -> tuple[str, list[tuple[int, str]]]:
        """The text of a delta, and where in it the special tokens among its ids stand: (offset, marker).

        A text that leaves special tokens out gets them back.
        """
        marks: list[tuple[int, str]] = []
        out: list[str] = []
        at = size = 0
        absent: set[str] = set()
        places = [position for position, token in enumerate(ids) if token in self.markers]
        between = [list(ids[a:b]) for a, b in zip([0, *(p + 1 for p in places)], [*places, len(ids)], strict=True)]
        said = [self.decode(part) if part else "" for part in between]
        # What is to come at least, from each of them on: where that is more than the text has, it need not be read.
        rest = [0] * (len(places) + 1)
        for n in range(len(places) - 1, -1, -1):
            follows = len(self.markers[ids[places[n + 1]]]) if n + 1 < len(places) else 0
            rest[n] = rest[n + 1] + follows + max(0, len(said[n + 1].strip()) - _LOST)
        for n, position in enumerate(places):
            marker = self.markers[ids[position]]
            spelled = said[n].count(marker) if len(between[n]) > 1 else 0
            found = at - 1
            for occurrence in range(spelled + 1 if marker not in absent else 0):
                found = text.find(marker, found + 1)
                if found < 0:
                    if not occurrence:
                        absent.add(marker)
                    break
            if found >= at:
                ahead, at = text[at:found], found + len(marker)
            else:
                # The marker belongs where its neighbours meet.
                after = self.decode(list(ids[position + 1 :])) if rest[n] <= len(text) - at else None
                where = _joint(text, at, said[n], after)
                ahead, at = text[at:where], where
            marks.append((size + len(ahead), marker))
            out += (ahead, marker)
            size += len(ahead) + len(marker)
        return "".join(out) + text[at:], marks


def _joint(text: str, at: int, ahead: str, behind: str | None) -> int:
    """Where in ``text[at:]`` what decodes to ``ahead`` ends and what decodes to ``behind`` begins.

    ``behind`` is None where it is longer than the text and so cannot be its end.
    """
    if behind and text.endswith(behind) and len(text) - len(behind) >= at:
        return len(text) - len(behind)
    if ahead and text.startswith(ahead, at):
        return at + len(ahead)
    return len(text) if behind == "" else at
