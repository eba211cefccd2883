"""The command line that starts a server: which engine's, by which way in, and what stands in it.

Nothing here looks at a process or a file, but for the file that ``--config`` names.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from engine_overlay import gateways
from engine_overlay.record import ENGINES

SUBCOMMANDS = ("serve", "run")
"""Subcommands of an engine's own command that start a server; aphrodite knows both of the first two."""

COMMAND, MODULE, GRPC, RUST = "command", "module", "gRPC module", "vllm-rs"
"""Ways in: ``vllm serve``, ``python -m ...api_server``, ``python -m ...grpc_server``, and the compiled command."""

RUST_COMMANDS = {"vllm-rs": "vllm", "aphrodite-rs": "aphrodite"}

_IMAGE = re.compile(r"(?:^|/)(vllm|aphrodite)-openai[\w.-]*(?::[^/]*)?$")
"""A container image whose entry point is the server, so that its flags follow it."""

_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=")
_OURS = re.compile(r"(ENGINE_OVERLAY|VLLM_|APHRODITE_|HF_|PYTHONPATH\Z)")
_YAML = re.compile(r"([A-Za-z_][\w-]*)\s*:\s*(.*?)\s*(?:#.*)?$")


class NotUnderstood(ValueError):
    """A command line that starts no server of an engine; carries one line."""


@dataclass(frozen=True, slots=True)
class Launch:
    """``words`` are what follows the engine's command or its server module; a subcommand is the first of them.

    ``engine`` is None where only flags were given. ``environ`` are the variables of the server that count for engine
    and overlay. ``source`` says where all this was found; ``pid`` and ``python`` are those of a running server, as far
    as they are known. ``way`` is the way in. With a ``gateway`` there is no server, only what stands in front of some.
    """

    engine: str | None
    words: tuple[str, ...]
    source: str
    environ: Mapping[str, str] = field(default_factory=dict)
    pid: int | None = None
    python: str | None = None
    way: str = COMMAND
    gateway: gateways.Gateway | None = None

    @property
    def foreign(self) -> bool:
        """Whether other code than the engine's Python reads these words."""
        return self.way == RUST or self.gateway is not None

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

    def flag(self, name: str, short: str = "") -> str | None:
        """The value of ``--name``, the last one wins; "" where it stands without one, None where it is not there.

        ``short`` is its other spelling, such as ``-dp``.
        """
        found = None
        wanted = name.replace("_", "-")
        for i, word in enumerate(self.words):
            key, equals, value = word.partition("=")
            if key != short or not short:
                if not key.startswith("--") or key[2:].replace("_", "-") != wanted:
                    continue
            if equals:
                found = value
            else:
                following = self.words[i + 1 : i + 2]
                # A value may be a negative number or JSON, but no flag.
                found = following[0] if following and not following[0].startswith("--") else ""
        return found

    def setting(self, name: str, short: str = "") -> str | None:
        """As :meth:`flag`, and where it is not there what the file of ``--config`` has; None for one that is off."""
        found = self.flag(name, short)
        if found is None and (file := self.flag("config")):
            found = _in_file(Path(file)).get(name.replace("_", "-"))
        return None if found is None or found.lower() == "false" else found


def _in_file(path: Path) -> dict[str, str]:
    """The plain values of a YAML file, which is all that switches are; nothing where it cannot be read."""
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return {}
    pairs = (found.groups() for line in lines if (found := _YAML.match(line)))
    return {key.replace("_", "-"): value.strip("'\"") for key, value in pairs}


def given(words: Sequence[str], source: str = "the given flags") -> Launch:
    """Read a command line: ``vllm serve MODEL ...``, ``python -m ...api_server ...``, a container's, or only flags.

    That of a gateway is read too. Raises NotUnderstood for one that starts no server.
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
    found = server(rest)
    if found is None and (gateway := gateways.of(rest)):
        found = Launch(None, tuple(rest), source, gateway=gateway)
    if found is None and rest[0].startswith("-"):
        found = Launch(None, tuple(rest), source)
    if found is None:
        raise NotUnderstood(f"{shlex.join(rest)[:100]!r} starts no server of vllm or aphrodite")
    return replace(found, source=source, environ=ours({**environ, **found.environ}))


def ours(environ: Mapping[str, str]) -> dict[str, str]:
    """Those variables that count for engine and overlay."""
    return {name: value for name, value in environ.items() if _OURS.match(name)}


def split(text: str) -> list[str]:
    """The words of a command line as a shell reads it. Raises NotUnderstood for an open quote."""
    try:
        # A line that was broken with backslashes comes whole from a pasted script.
        return shlex.split(text.replace("\\\n", " "))
    except ValueError as error:
        raise NotUnderstood(f"the flags cannot be read ({error})") from None


def server(words: Sequence[str], *, containers: bool = True, within: int | None = None) -> Launch | None:
    """The server that these words start; only the first ``within`` words may be its program. None for none."""
    for i, word in enumerate(words[:within]):
        name, after = Path(word).name, tuple(words[i + 1 :])
        if name in ENGINES and after[:1] and after[0] in SUBCOMMANDS:
            return Launch(name, after, "")
        if name in RUST_COMMANDS and after[:1] and after[0] in ("serve", "frontend"):
            return Launch(RUST_COMMANDS[name], after, "", way=RUST)
        path = after[0].replace(".", "/") if word == "-m" and after else word if word.endswith(".py") else None
        if path is not None and (found := _module(path, after[1:] if word == "-m" else after)):
            return found
        image = _IMAGE.search(word) if containers else None
        if image and i:
            starts = after if after[:1] and after[0].startswith("-") else ("serve", *after)
            # What `docker run` gives the container comes in front of its image.
            return Launch(image[1], starts, "", _container_variables(words[:i]))
    return None


def _module(path: str, after: tuple[str, ...]) -> Launch | None:
    """The server that this module or file is."""
    found = re.search(r"(?:^|/)(vllm|aphrodite)/(?:\w+/)*(?:api_server|endpoints)(?:/\w+)?(?:\.py)?$", path)
    if found:
        return Launch(found[1], after, "", way=MODULE)
    if found := re.search(r"(?:^|/)(vllm|aphrodite)/entrypoints/(?:\w+/)*grpc_server(?:\.py)?$", path):
        return Launch(found[1], after, "", way=GRPC)
    found = re.search(r"(?:^|/)(vllm|aphrodite)/entrypoints/cli/main(?:\.py)?$", path)
    return Launch(found[1], after, "") if found and after[:1] and after[0] in SUBCOMMANDS else None


def _container_variables(words: Sequence[str]) -> dict[str, str]:
    found = {}
    for i, word in enumerate(words):
        text = words[i + 1] if word in ("-e", "--env") and i + 1 < len(words) else None
        text = word.partition("=")[2] if word.startswith("--env=") else text
        if text and _ASSIGNMENT.match(text):
            name, _, value = text.partition("=")
            found[name] = value
    return found
