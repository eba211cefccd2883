"""What a tokenizer knows of a format: the ids of its markers, how ids become text, and where in it markers stand."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from engine_overlay.text.formats import Format


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
        at = behind = size = 0
        for position, token in enumerate(ids):
            marker = self.markers.get(token)
            if marker is None:
                continue
            between = list(ids[behind:position])
            spelled = self.decode(between).count(marker) if len(between) > 1 else 0
            found = at - 1
            for _ in range(spelled + 1):
                found = text.find(marker, found + 1)
                if found < 0:
                    break
            if found >= 0:
                ahead, at = text[at:found], found + len(marker)
            else:
                # The marker belongs where its neighbours meet.
                ahead = self.decode(between) if between else ""
                where = _joint(text, at, ahead, self.decode(list(ids[position + 1 :])))
                ahead, at = text[at:where], where
            marks.append((size + len(ahead), marker))
            out += (ahead, marker)
            size += len(ahead) + len(marker)
            behind = position + 1
        return "".join(out) + text[at:], marks


def _joint(text: str, at: int, ahead: str, behind: str) -> int:
    """Where in ``text[at:]`` what decodes to ``ahead`` ends and what decodes to ``behind`` begins."""
    if behind and text.endswith(behind) and len(text) - len(behind) >= at:
        return len(text) - len(behind)
    if ahead and text.startswith(ahead, at):
        return at + len(ahead)
    return at if behind else len(text)
