"""Everything that is asked of one server, kept to compare servers with and without the overlay."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import openai

from . import client, environment
from .answers import SCRIPTS, Answer, Speller, Spelling, spelling_of, stream_of_its_own
from .server import Server

CROWDS = (1, 8, 16, 32)
"""Numbers of streams at once."""

BUDGET = 8
"""Tokens of thinking that the request with ``thinking_token_budget`` allows."""

THOUGHT = "one two three four five six seven eight nine ten eleven twelve"
"""A thought that does not end by itself."""

SPELLINGS: tuple[Spelling, ...] = ("whole", "spelled")

_LOADED = re.compile(r"^import time:.*\|\s*(_engine_overlay_startup|engine_overlay[\w.]*)\s*$", re.MULTILINE)
_ATTEMPTS = 4

@dataclass(frozen=True, slots=True)
class Record:
    """What one server answered. Keys are (name of the script, spelling, streamed)."""

    answers: dict[tuple[str, str, bool], Answer]
    quoted: dict[bool, Answer]
    bodies: dict[tuple[str, str, bool], list[str]]
    """Response bodies, distinct ones of some attempts: a busy machine may join two tokens into one delta."""
    crowds: dict[int, list[Answer]]
    budget: dict[bool, Answer | str]
    ends: dict[str, Answer | str]
    """Answers to requests with a budget and with a grammar, whose reasoning the model ends in other ways."""
    loaded: frozenset[str]
    """Modules of the overlay that any process of the server imported, as Python itself reports imports."""
    processes: dict[int, str] = field(default_factory=dict)
    status: list[dict[str, Any]] = field(default_factory=list)
    doctor: dict[str, Any] = field(default_factory=dict)


def record(
    server: Server,
    speller: Speller,
    status: Callable[[], list[dict[str, Any]]] | None,
    doctor: Callable[[], dict[str, Any]] | None = None,
) -> Record:
    """Ask ``server`` everything. It must run with ``PYTHONPROFILEIMPORTTIME=1``."""
    answers: dict[tuple[str, str, bool], Answer] = {}
    bodies: dict[tuple[str, str, bool], list[str]] = {}
    for name, script in SCRIPTS.items():
        extra = {"stop": list(script.stop)} if script.stop else {}
        for spelling in SPELLINGS:
            ids = speller.ids(script.text, spelling)
            for stream in (True, False):
                key = (name, spelling, stream)
                answers[key] = client.ask(server, ids, stream=stream, **extra)
                bodies[key] = _bodies(server, ids, stream, extra)
    quoted = {stream: client.ask(server, speller.quoted(), stream=stream) for stream in (True, False)}
    crowds = {}
    for size in CROWDS:
        scripts = [speller.ids(stream_of_its_own(n).text, spelling_of(n)) for n in range(size)]
        crowds[size] = client.ask_many(server, scripts)
    return Record(
        answers=answers,
        quoted=quoted,
        bodies=bodies,
        crowds=crowds,
        budget=budgets(server, speller),
        ends=ends(server, speller),
        loaded=frozenset(_LOADED.findall(server.log.read_text(errors="replace"))),
        processes=server.processes(),
        status=status() if status else [],
        doctor=doctor() if doctor else {},
    )


def budgets(server: Server, speller: Speller) -> dict[bool, Answer | str]:
    """Streamed or not, the answer to a request with a thinking budget, or the words of its refusal."""
    found: dict[bool, Answer | str] = {}
    for stream in (True, False):
        try:
            ids = speller.ids(THOUGHT, "whole")
            found[stream] = client.ask(server, ids, stream=stream, thinking_token_budget=BUDGET)
        except openai.APIError as refusal:
            found[stream] = str(refusal)
    return found


SAID = " ".join(["one two three four five six"] * 4)
CALLED = ("get_weather", {"city": "Paris"})
_CALL = "\n<tool_call>\n<function=get_weather>\n<parameter=city>\nParis\n</parameter>\n</function>\n</tool_call>"
ENDS: dict[str, tuple[str, Spelling, dict[str, Any]]] = {
    "budget, spelled": (f"I should count.</think>{SAID}", "spelled", {"thinking_token_budget": 12}),
    "budget, call": (f"I should look.{_CALL}", "whole", {"thinking_token_budget": 12}),
    "grammar, spelled": (
        f"I should count.</think>{SAID}", "spelled", {"structured_outputs": {"choice": ["yes", "no"]}}
    ),
    "grammar, whole": (f"I should count.</think>{SAID}", "whole", {"structured_outputs": {"choice": ["yes", "no"]}}),
}  # fmt: skip
"""What the model wants to say, how it spells its markers, and what the request asks for."""


def ends(server: Server, speller: Speller) -> dict[str, Answer | str]:
    """The answers to :data:`ENDS`. A tool counts as declared when its name stands in the prompt."""
    found: dict[str, Answer | str] = {}
    messages = [{"role": "user", "content": "Use get_weather."}]
    for name, (text, spelling, extra) in ENDS.items():
        more = extra | {"messages": messages, "tool_choice": "none" if name.startswith("grammar") else "auto"}
        try:
            found[name] = client.ask(server, speller.ids(text, spelling), stream=False, heeds=True, **more)
        except openai.APIError as refusal:
            found[name] = str(refusal)
    return found


def status_by_command(python: Path, state_dir: Path) -> list[dict[str, Any]]:
    """What ``engine-overlay status --json`` says of the processes that keep their state in ``state_dir``."""
    command = [python.with_name("engine-overlay"), "status", "--json", "--state-dir", state_dir]
    return json.loads(subprocess.run(command, capture_output=True, text=True, check=False).stdout)


def doctor_by_command(python: Path, server: Server, state_dir: Path) -> dict[str, Any]:
    """What ``engine-overlay doctor --json`` says of the running server, which it finds by itself."""
    command = [python.with_name("engine-overlay"), "doctor", "--no-probes", "--json", "--pid", str(server.group)]
    # Beside it the shell of a user, who sets nothing but where the reports are.
    env = {**environment.variables(), "ENGINE_OVERLAY_STATE_DIR": str(state_dir)}
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    return json.loads(done.stdout)


def _bodies(server: Server, ids: list[int], stream: bool, extra: dict[str, Any]) -> list[str]:
    found: dict[str, None] = {}
    for _ in range(_ATTEMPTS if stream else 1):
        found[client.ask_bytes(server, ids, stream=stream, **extra)] = None
    return list(found)
