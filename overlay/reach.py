"""Whether what a patch does is on the way of a request in a process.

A module can be loaded and patched where no request comes by: in front of the engine's core there may be a front end
that is no Python, a gateway that is sent token ids, or another process. :func:`of_process` and :func:`of_server` are
pure: command line, environment, role and loaded modules in, a :class:`Place` out. :func:`here` asks this process.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from engine_overlay import commandline
from engine_overlay.commandline import Launch
from engine_overlay.engines import Engine
from engine_overlay.record import ENGINES

OUT_OF_PATH = "out of path"

IN, CALLED, ELSEWHERE = "in", "called", "elsewhere"
NOT_ASKED, BYPASSED = "not asked", "bypassed"
WAYS = {
    IN: "requests of this process meet it",
    CALLED: "no API server runs here: it is met by what the program itself calls",
    ELSEWHERE: "it works in another process of the server",
    NOT_ASKED: "no request that it is about comes to this server",
    BYPASSED: "requests that it is about are answered by other code",
}
"""What can be said of a patch and a process; all but the first two are :data:`OUT_OF_PATH`."""

_ORDER = (IN, CALLED, ELSEWHERE, BYPASSED, NOT_ASKED)
_PLACES = {
    "server": "it works in the API server",
    "metrics": "it works in the API server",
    "config": "it works where the engine's config is made",
    "engine core": "it works in the engine core",
    "worker": "it works in the workers",
    "command": "it works in the engine's command collect-env",
}
_SERVING = ("entrypoints.openai.chat_completion.serving", "entrypoints.scale_out.derender.serving")
"""Modules that ask parsers for answers; every release imports them when it makes a server that generates text."""

_WITHOUT_TEXT = frozenset({"metrics", "config", "command"})
"""Scopes that have something to do also where nothing is generated."""

_POOLING = re.compile(r"\w+\.entrypoints\.pooling\.(?!base\.)\w+\.serving")


@dataclass(frozen=True, slots=True)
class Way:
    """One of :data:`WAYS`, and why in a line; ``step`` is what to do about it."""

    word: str
    reason: str = ""
    step: str = ""

    def __str__(self) -> str:
        return f"{self.reason}; {self.step}" if self.step else self.reason

    @property
    def out(self) -> bool:
        return self.word not in (IN, CALLED)


@dataclass(frozen=True, slots=True)
class Place:
    """A process or a whole server, by what each scope of a patch meets there.

    ``about_text`` is set where no request generates text at all: built-in patches are about text, others may not be.
    """

    name: str
    scopes: Mapping[str, Way]
    about_text: Way | None = None

    def of(self, scope: Collection[str], *, built_in: bool = True) -> Way:
        """What a patch of this scope meets here: the best of its scopes."""
        if self.about_text is not None and built_in and not _WITHOUT_TEXT & set(scope):
            return self.about_text
        elsewhere = (Way(ELSEWHERE, _PLACES.get(one, "it works in another process")) for one in scope)
        found = [self.scopes.get(one, other) for one, other in zip(scope, elsewhere, strict=True)]
        return min(found, key=lambda way: _ORDER.index(way.word))


def of_process(
    engine: str,
    launch: Launch | None,
    environ: Mapping[str, str],
    role: str,
    *,
    loaded: Collection[str] = (),
    rust: bool = True,
    parent: Sequence[str] = (),
) -> Place:
    """The place of a process. ``launch`` is the server that its command line, or its parent's, starts.

    ``role`` is as :func:`role` gives it, ``loaded`` are the imported modules, ``rust`` says whether this release has a
    front end in Rust, and ``parent`` is the command line of the parent process.
    """
    kind = role.partition(" (")[0]
    textless = _pooling(launch, environ) if launch is not None else None
    if kind in ("engine core", "worker", "coordinator"):
        own = {"engine core": ("engine core", "worker"), "worker": ("worker",)}.get(kind, ())
        return Place(role, dict.fromkeys(own, Way(IN)), textless)
    serving = any(f"{engine}.{name}" in loaded for name in _SERVING)
    if launch is None:
        # Any program: it may run workers of its own, or serve by means of its own.
        scopes = dict.fromkeys(_PLACES, Way(IN))
        if not serving:
            said = "no API server runs in this program: only what it calls itself meets it"
            scopes["server"] = scopes["metrics"] = Way(CALLED, said)
        return Place(role, scopes)
    name, front = _front(engine, launch, environ, rust, parent)
    if role != kind:
        name = role
    elif front is None and not serving and _several(launch):
        name, front = "supervisor", Way(ELSEWHERE, "it works in the API servers that this process starts")
    if front is None and textless is None and not serving and any(map(_POOLING.fullmatch, loaded)):
        textless = Way(NOT_ASKED, "it is a pooling server: its requests generate no text")
    return Place(name, {"config": Way(IN), **_served(front, launch)}, textless)


def of_server(engine: str, launch: Launch | None, environ: Mapping[str, str], *, rust: bool = True) -> Place:
    """The place of a whole server with all its processes, as this command line would start it.

    Without a command line it is ``serve``, with nothing but the environment.
    """
    launch = launch or Launch(engine, ("serve",), "")
    scopes = dict.fromkeys(_PLACES, Way(IN)) | _served(_front(engine, launch, environ, rust)[1], launch)
    return Place("server", scopes, _pooling(launch, environ))


def _front(
    engine: str, launch: Launch, environ: Mapping[str, str], rust: bool, parent: Sequence[str] = ()
) -> tuple[str, Way | None]:
    """What the first process of this server is, and why requests do not meet its Python code; None where they do."""
    own = f"serve with {engine}'s Python API server"
    if launch.gateway is not None:
        gateway = launch.gateway
        return gateway.name, Way(BYPASSED, gateway.parses, gateway.step) if gateway.parses else None
    if launch.way == commandline.RUST:
        return "supervisor", Way(BYPASSED, f"{engine}-rs answers requests, with parsers of its own", own)
    if launch.way == commandline.GRPC or launch.way == commandline.COMMAND and launch.setting("grpc") is not None:
        said = "the gRPC server sends token ids to a gateway, which parses them itself"
        return "gRPC server", Way(BYPASSED, said, own)
    if launch.way == commandline.COMMAND:
        if launch.setting("headless") is not None or launch.setting("api-server-count", "-asc") == "0":
            above = Path(parent[0]).name if parent else ""
            if above in commandline.RUST_COMMANDS:
                return "headless node", Way(BYPASSED, f"{above} started this node and answers requests itself", own)
            said = "no API server runs on a headless node: it works where requests are answered"
            return "headless node", Way(NOT_ASKED, said, "look there with engine-overlay status")
        variable = f"{engine.upper()}_USE_RUST_FRONTEND"
        # The engine reads it as a number; what is no number it refuses itself.
        if rust and environ.get(variable, "0").strip() not in ("", "0"):
            said = f"{variable}={environ[variable]}: the engine's Rust front end answers requests with its own parsers"
            return "supervisor", Way(BYPASSED, said, f"unset {variable}")
    return "API server", None


def _served(front: Way | None, launch: Launch) -> dict[str, Way]:
    """What the code of the API server meets, behind this front."""
    found = {"server": front or Way(IN), "metrics": front or Way(IN)}
    if front is None and launch.setting("tokens-only") is not None:
        said = "--tokens-only: this server takes and gives token ids; whoever turns them into text parses it"
        found["server"] = Way(NOT_ASKED, said, "install the overlay where that is done")
    return found


def _several(launch: Launch) -> bool:
    """Whether the engine's command starts its API servers as processes of their own, as it decides by its flags."""
    if launch.way != commandline.COMMAND:
        return False
    if count := launch.setting("api-server-count", "-asc"):
        return _number(count) > 1
    if launch.setting("data-parallel-multi-port-external-lb") is not None:
        return True
    if launch.setting("data-parallel-external-lb", "-dpe") is not None or launch.setting("data-parallel-rank", "-dpn"):
        return False
    hybrid = launch.setting("data-parallel-hybrid-lb", "-dph") is not None
    if hybrid or launch.setting("data-parallel-start-rank", "-dpr"):
        return _number(launch.setting("data-parallel-size-local", "-dpl")) > 1
    return _number(launch.setting("data-parallel-size", "-dp")) > 1


def _number(text: str | None) -> int:
    return int(text) if text and text.isdecimal() else 1


# -- servers that generate no text

_GENERATES = ("ForCausalLM", "ForConditionalGeneration", "ChatModel", "LMHeadModel")
_POOLS = ("ForTextEncoding", "EmbeddingModel", "ClassificationModel", "ForRewardModeling", "RewardModel")


def _pooling(launch: Launch, environ: Mapping[str, str]) -> Way | None:
    """Why no request of this server generates text, by its flags and its model's files; None where none says so."""
    runner, convert = launch.setting("runner"), launch.setting("convert")
    if runner == "pooling":
        said = "--runner pooling"
    elif runner not in (None, "", "auto"):
        return None
    elif convert not in (None, "", "auto", "none"):
        said = f"--convert {convert}"
    elif kind := _pools(launch, environ):
        said = f"the model is {kind}"
    else:
        return None
    return Way(NOT_ASKED, f"{said}: the requests of a pooling server generate no text")


def _pools(launch: Launch, environ: Mapping[str, str]) -> str | None:
    """What makes the model one that engines serve for pooling; only what its files here say for certain."""
    if not launch.model:
        return None
    from engine_overlay.doctor import model as models

    try:
        folder = models.find(launch.model, launch.setting("revision"), environ)
        found = models.read(launch.model, folder)
    except (models.NotHere, OSError, ValueError):
        return None
    if "sentence_transformers.models.Pooling" in _text(folder / "modules.json"):
        return "a sentence-transformers model"
    for name in found.architectures:
        if name.endswith(_GENERATES):
            return None
        if name.endswith(_POOLS) or re.search(r"For(Sequence|Token|Audio|Image|Video)Classification$", name):
            return f"a {name}"
    return None


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


# -- this process

_ROLES = {
    "ApiServer": "API server",
    "EngineCore": "engine core",
    "VllmWorker": "worker",
    "AphroditeWorker": "worker",
    "Worker": "worker",
    "DPCoordinator": "coordinator",
    "VLLM_DP_Coordinator": "coordinator",
}
"""How the engines name their processes -> what they are."""


def role() -> str:
    """What this process is in an engine: API server, engine core, worker, coordinator; else its own name."""
    process = sys.modules.get("multiprocessing.process")
    name = process.current_process().name if process is not None else "MainProcess"
    for start, meaning in _ROLES.items():
        if name.startswith(start):
            return f"{meaning} ({name})" if any(char.isdigit() for char in name) else meaning
    if name == "MainProcess":
        served = any(f"{engine}.entrypoints.openai.api_server" in sys.modules for engine in ENGINES)
        main = getattr(getattr(sys.modules.get("__main__"), "__spec__", None), "name", "") or ""
        return "API server" if served or main.endswith("openai.api_server") else "main"
    return name


def here(engine: Engine, environ: Mapping[str, str] = os.environ) -> Place:
    """The place of this process, now."""
    launch = _command(getattr(sys, "argv", None) or [""], getattr(sys, "orig_argv", []))
    if launch is not None and launch.engine != engine.name:
        launch = None
    return of_process(
        engine.name,
        launch,
        environ,
        role(),
        loaded=frozenset(name for name in list(sys.modules) if name.startswith(f"{engine.name}.entrypoints.")),
        rust=has_rust(engine, environ),
        parent=_parent(),
    )


def _command(argv: Sequence[str], original: Sequence[str]) -> Launch | None:
    """The server that this program is, or in a child that its parent is: others may have one among their words."""
    # While `python -m` looks for its module it has no name yet.
    words = list(original[list(original).index("-m") :]) if argv[0] == "-m" and "-m" in original else argv
    return commandline.server(words, containers=False, within=1)


def _parent() -> list[str]:
    try:
        raw = Path(f"/proc/{os.getppid()}/cmdline").read_bytes()
    except OSError:
        return []
    return raw.decode(errors="replace").rstrip("\0").split("\0")


def has_rust(engine: Engine, environ: Mapping[str, str]) -> bool:
    """Whether this release reads the variable that asks for its Rust front end; looked at only where it is set."""
    name = f"{engine.name.upper()}_USE_RUST_FRONTEND"
    if name not in environ:
        return False
    source = engine.source("envs")
    return source is not None and name in _text(source)


# -- in words


def line(going: Iterable[tuple[str, Way]]) -> str:
    """What a process is told at its start of the patches that go in: which of them are on a request's way there."""
    groups: dict[str, list[str]] = {}
    for patch_id, way in going:
        groups.setdefault(way.word if way.word in (IN, ELSEWHERE) else f"{way.word}: {way.reason}", []).append(patch_id)
    said = []
    for key, ids in sorted(groups.items(), key=lambda group: _ORDER.index(group[0].partition(":")[0])):
        word, names = key.partition(": ")[0], ", ".join(ids)
        if word == IN:
            said.append(f"patching {names}")
        elif word == ELSEWHERE:
            said.append(f"of other processes: {names}")
        elif word == CALLED:
            said.append(f"if it serves or calls them itself: {names}")
        else:
            said.append(f"{OUT_OF_PATH} ({key.partition(': ')[2]}): {names}")
    return "; ".join(said) or "nothing to patch"
