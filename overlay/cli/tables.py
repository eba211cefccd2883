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
    "yellow": ("staged", "undone", "PRESENT", "untested", "retire", "look", "not"),
    "bold red": ("drifted", "missing", "conflict", "failed", "displaced", "NOT", "cause", "FAULT", "WRONG"),
    "magenta": ("UNKNOWN",),
    "dim": ("disabled", "off", "-"),
}
"""Colour -> first words of a cell that have it."""

_STYLE_OF = {word: style for style, words in STYLES.items() for word in words}


def fancy() -> bool:
    """Whether standard output is a terminal that can show colours and boxes."""
    return sys.stdout.isatty() and os.environ.get("TERM", "") != "dumb"


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
    from rich.table import Table
    from rich.text import Text

    console = _console()
    made = Table(box=box.SIMPLE_HEAD, title=Text(clean(title), style="bold") if title else None, title_justify="left")
    for i, name in enumerate(head):
        longest = max((len(row[i]) for row in [list(head), *cells]), default=0)
        # A word that one copies into a setting is never broken, as long as the others have room beside it.
        whole = longest <= 16 or (i == 0 and longest * 2 <= console.width)
        made.add_column(name, overflow="fold", no_wrap=whole)
    for row in cells:
        styled = [_STYLE_OF.get(_word(cell), "") if head[i] in words else "" for i, cell in enumerate(row)]
        made.add_row(*(Text(cell, style=style) for cell, style in zip(row, styled, strict=True)))
    console.print(made)


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
        _console().print(Text.assemble("  ", (word, _STYLE_OF.get(word, "bold")), f": {meaning}", style="dim"))


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


def _word(cell: str) -> str:
    return cell.partition(" ")[0].rstrip(":,;")


@functools.cache
def _console() -> Any:
    from rich.console import Console

    # It reads NO_COLOR and the width itself.
    return Console(highlight=False, markup=False, emoji=False)
