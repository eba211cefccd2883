"""How the commands print: tables with colours on a terminal, plain text that a script can read everywhere else.

Nothing of rich is loaded unless a terminal is there. Whatever is printed may come from an engine's sources or from
another user's status file: no character of it steers the terminal, and none of it is read as markup.
"""

from __future__ import annotations

import functools
import json
import os
import sys
from collections.abc import Collection, Sequence
from typing import Any

STYLES = {
    "green": ("apply", "applied", "proven", "ABSENT", "on", "right", "nothing", "ok"),
    "cyan": ("native",),
    "yellow": ("staged", "undone", "out", "PRESENT", "untested", "retire", "look", "not"),
    "bold red": ("drifted", "missing", "conflict", "failed", "displaced", "NOT", "cause", "FAULT", "WRONG"),
    "magenta": ("UNKNOWN",),
    "dim": ("disabled", "off", "-"),
}
"""Colour -> first words of a cell that have it."""

_STYLE_OF = {word: style for style, words in STYLES.items() for word in words}


def fancy() -> bool:
    """Whether standard output is a terminal that can show colours and boxes."""
    return sys.stdout is not None and sys.stdout.isatty() and os.environ.get("TERM", "") != "dumb"


def clean(text: object, *, lines: bool = False) -> str:
    """``text`` without what could steer a terminal; on one line, unless ``lines`` keeps its line breaks and tabs."""
    kept = "\n\t" if lines else ""
    whole = str(text)
    return "".join(c if c.isprintable() or c in kept else " " if c.isspace() else "" for c in whole)


def say(text: object = "", *, style: str | None = None) -> None:
    """Print lines of prose: wrapped at words on a terminal, as they are everywhere else."""
    shown = clean(text, lines=True)
    if not fancy():
        print(shown, flush=True)
        return
    from rich.text import Text

    _console().print(Text(shown, style=style or ""))


def show(
    rows: Sequence[Sequence[object]],
    head: Sequence[str],
    *,
    words: Collection[str] = (),
    title: str = "",
) -> None:
    """Print a table. ``words``: columns whose cells begin with a word that has a colour in :data:`STYLES`."""
    cells = [[clean(cell) for cell in row] for row in rows]
    if not fancy():
        print("\n".join([*([clean(title)] if title else ()), table(cells, head)]), flush=True)
        return
    from rich import box
    from rich.padding import Padding
    from rich.table import Table
    from rich.text import Text

    def styled(i: int, cell: str) -> Text:
        return Text(cell, style=style_of(cell) if head[i] in words else "")

    console = _console()
    if title:
        console.print(Text(clean(title), style="bold"))
    widths = [max(len(row[i]) for row in [list(head), *cells]) for i in range(len(head))]
    least = [_least(width, [row[i] for row in cells]) for i, width in enumerate(widths)]
    if sum(least) + 3 * len(least) + 1 > console.width:
        # Too narrow for columns: a block a row, nothing cut.
        for row in cells:
            console.print(Text(row[0], style="bold"))
            line: list[Text] = []
            for i, cell in enumerate(row[1:], 1):
                if cell:
                    line.append(Text.assemble((f"{head[i]}: ", "dim"), styled(i, cell)))
                if line and (widths[i] > _WRAPS or widths[i + 1 : i + 2] == [] or widths[i + 1] > _WRAPS):
                    console.print(Padding(Text("  ").join(line), (0, 0, 0, 4)))
                    line = []
        return
    made = Table(box=box.SIMPLE_HEAD)
    for name, width, floor in zip(head, widths, least, strict=True):
        made.add_column(name, overflow="fold", no_wrap=width <= _WRAPS, min_width=floor)
    for row in cells:
        made.add_row(*(styled(i, cell) for i, cell in enumerate(row)))
    console.print(made)


_WRAPS, _NARROW = 34, 24
"""On a terminal a column wider than the first is wrapped, to no less than the second; others are never broken."""


def _least(width: int, column: list[str]) -> int:
    """How narrow a column may become: what one copies, such as a setting, stays in one piece."""
    if width <= _WRAPS:
        return width
    return max(_NARROW, *(len(word) for cell in column for word in cell.split()))


def table(rows: Sequence[Sequence[str]], head: Sequence[str]) -> str:
    """A plain text table, a line a row, as wide as its cells are."""
    cells = [list(head), *map(list, rows)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(head))]
    lines = ["  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)).rstrip() for row in cells]
    return "\n".join([lines[0], "  ".join("-" * w for w in widths), *lines[1:]])


def legend(words: dict[str, str]) -> None:
    """What the words in a table mean; on a terminal only, as scripts know."""
    if not fancy():
        return
    from rich.text import Text

    for word, meaning in words.items():
        _console().print(Text.assemble("  ", (word, style_of(word) or "bold"), f": {meaning}", style="dim"))


def show_diff(text: str) -> None:
    """Print a difference, added and removed lines coloured on a terminal."""
    shown = clean(text, lines=True)
    if not fancy():
        print(shown, flush=True)
        return
    from rich.text import Text

    colours = {"+": "green", "-": "red", "@": "cyan", "#": "yellow"}
    for line in shown.split("\n"):
        _console().print(Text(line, style="bold" if line[:3] in ("+++", "---") else colours.get(line[:1], "")))


def show_json(data: Any) -> None:
    """Print JSON whole: never coloured, never wrapped."""
    print(json.dumps(data, indent=1), flush=True)


def style_of(cell: str) -> str:
    """The colour of a cell by its first word; empty for none."""
    return _STYLE_OF.get(cell.partition(" ")[0].rstrip(":,;"), "")


@functools.cache
def _console() -> Any:
    from rich.console import Console

    # It reads NO_COLOR and the width itself.
    return Console(highlight=False, markup=False, emoji=False)
