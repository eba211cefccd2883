"""The command line that starts a server: where it is taken from, and what stands in it.

It is given, or read from a running server: from the overlay's own report of it, or from ``/proc`` for servers without
the overlay. The engine's own parser reads it in a process of its own; :func:`Launch.flag` is the reading for when that
cannot be done.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from engine_overlay import settings, status
from engine_overlay.record import ENGINES

SUBCOMMANDS = ("serve", "run")
"""Subcommands of an engine's own command that start a server; aphrodite knows both of the first two."""

_IMAGE = re.compile(r"(?:^|/)(vllm|aphrodite)-openai[\w.-]*(?::[^/]*)?$")
"""A container image whose entry point is the server, so that its flags follow it."""

_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=")
_OURS = re.compile(r"(ENGINE_OVERLAY|VLLM_|APHRODITE_|HF_|PYTHONPATH\Z)")


class NotUnderstood(ValueError):
    """A command line that starts no server of an engine; carries one line."""


@dataclass(frozen=True, slots=True)
class Launch:
    """``words`` are what follows the engine's command or its server module; a subcommand is the first of them.

    ``engine`` is None where only flags were given. ``environ`` are the variables of the server that count for engine
    and overlay. ``source`` says where all this was found; ``pid`` and ``python`` are those of a running server, as far
    as they are known.
    """

    engine: str | None
    words: tuple[str, ...]
    source: str
    environ: Mapping[str, str] = field(default_factory=dict)
    pid: int | None = None
    python: str | None = None

    @property
    def subcommand(self) -> str | None:
        return self.words[0] if self.words and self.words[0] in SUBCOMMANDS else None

    @property
    def model(self) -> str | None:
        """What the server is told to serve, as written there."""
        first = self.words[1:2] if self.subcommand else ()
        if first and not first[0].startswith("-"):
            return first[0]
        return self.flag("model")

    def flag(self, name: str) -> str | None:
        """The value of ``--name``, the last one wins; "" where it stands without one, None where it is not there."""
        found = None
        wanted = name.replace("_", "-")
        for i, word in enumerate(self.words):
            key, equals, value = word.partition("=")
            if not key.startswith("--") or key[2:].replace("_", "-") != wanted:
                continue
            if equals:
                found = value
            else:
                following = self.words[i + 1 : i + 2]
                # A value may be a negative number or JSON, but no flag.
                found = following[0] if following and not following[0].startswith("--") else ""
        return found


def given(words: Sequence[str], source: str = "the given flags") -> Launch:
    """Read a command line: ``vllm serve MODEL ...``, ``python -m ...api_server ...``, a container's, or only flags.

    Raises NotUnderstood for one that starts no server.
    """
    rest = list(words)
    environ: dict[str, str] = {}
    if rest and Path(rest[0]).name == "env":
        rest.pop(0)
    while rest and _ASSIGNMENT.match(rest[0]):
        name, _, value = rest.pop(0).partition("=")
        environ[name] = value
    if not rest:
        raise NotUnderstood("the command line is empty")
    found = _server(rest)
    if found is None and rest[0].startswith("-"):
        found = None, tuple(rest)
    if found is None:
        raise NotUnderstood(f"{shlex.join(rest)[:100]!r} starts no server of vllm or aphrodite")
    return Launch(found[0], found[1], source, {k: v for k, v in environ.items() if _OURS.match(k)})


def split(text: str) -> list[str]:
    """The words of a command line as a shell reads it. Raises NotUnderstood for an open quote."""
    try:
        # A line that was broken with backslashes comes whole from a pasted script.
        return shlex.split(text.replace("\\\n", " "))
    except ValueError as error:
        raise NotUnderstood(f"the flags cannot be read ({error})") from None


def _server(words: Sequence[str], *, containers: bool = True) -> tuple[str, tuple[str, ...]] | None:
    for i, word in enumerate(words):
        name, after = Path(word).name, tuple(words[i + 1 :])
        if name in ENGINES and after[:1] and after[0] in SUBCOMMANDS:
            return name, after
        if word == "-m" and after and (engine := _api_server(after[0].replace(".", "/"))):
            return engine, after[1:]
        if word.endswith(".py") and (engine := _api_server(word)):
            return engine, after
        image = _IMAGE.search(word) if containers else None
        if image and i:
            return image[1], after if after[:1] and after[0].startswith("-") else ("serve", *after)
    return None


def _api_server(path: str) -> str | None:
    """The engine whose HTTP server this module or file is."""
    found = re.search(r"(?:^|/)(vllm|aphrodite)/(?:\w+/)*(?:api_server|endpoints)(?:/\w+)?(?:\.py)?$", path)
    return found[1] if found else None


def running(pid: int | None = None) -> list[Launch]:
    """The servers that run here, or the one in process ``pid``, each once; those of other users only where readable."""
    seen: dict[int, Launch] = {}
    wanted = settings.read().state_dir
    for place in [wanted] if wanted else status.places()[0]:
        for report in status.read_all(place) if place.is_dir() else ():
            if pid in (None, report["pid"]) and str(report.get("role") or "").startswith(("API server", "main")):
                _add(seen, report["pid"], report["argv"], "its report")
    for found in _processes() if pid is None else [pid]:
        if found not in seen:
            _add(seen, found, _words(found), "/proc")
    # Processes that a server forked off have its command line.
    return [launch for p, launch in seen.items() if pid is not None or _parent(p) not in seen]


def _add(seen: dict[int, Launch], pid: int, words: Sequence[str], how: str) -> None:
    found = _server(words, containers=False)
    if found is None:
        return
    environ = {k: v for k, v in _environ(pid).items() if _OURS.match(k)}
    first = Path(words[0])
    python = str(first) if first.is_absolute() and first.name.startswith("python") else None
    seen[pid] = Launch(found[0], found[1], f"pid {pid}, by {how}", environ, pid, python)


def _processes() -> Iterator[int]:
    folder = Path("/proc")
    # Whoever started the doctor may have a server's command line in its own words.
    above: list[int | None] = [os.getpid()]
    while (parent := _parent(above[-1] or 0)) is not None:
        above.append(parent)
    for entry in folder.iterdir() if folder.is_dir() else ():
        if entry.name.isdigit() and int(entry.name) not in above:
            yield int(entry.name)


def _words(pid: int) -> list[str]:
    try:
        raw = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return []
    return raw.decode(errors="replace").rstrip("\0").split("\0")


def _environ(pid: int) -> dict[str, str]:
    try:
        raw = Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return {}
    pairs = (entry.partition("=") for entry in raw.decode(errors="replace").split("\0"))
    return {name: value for name, equals, value in pairs if equals}


def _parent(pid: int) -> int | None:
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    return int(text.rpartition(")")[2].split()[1])
