"""The public cases of tests/cases, asked of the real server over HTTP by the openai client."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import openai
from openai import OpenAI

from engine_overlay.verify import cases as public
from engine_overlay.verify.cases import Answer, Case

from . import client
from .case_model import Pieces
from .server import MODEL, Server

_PAUSE = 0.005
"""Seconds a token in a stream, so that the engine hands out one at a time."""

_NEVER = "\x01"
"""No case says it; a stop string of it holds text back as long as the case wants."""

GRAMMAR = {
    "058-choice-required-xml": "\n\n",
    "059-choice-named-xml": "\n\n",
    "061-choice-required-hermes-native": "\n\n",
    "082-glm47-call": "\n",
    "086-glm47-string-number": "\n",
}
"""White space that the engine's own grammar for tool calls lets no model say in these requests: it ends an answer
that has it with status 500. They are asked without it; what they expect does not depend on it."""


def pair(case: Case) -> str:
    return f"{case['reasoning_parser'] or ''}+{case['tool_parser'] or ''}"


def pairs() -> list[str]:
    return sorted({pair(case) for case in public.load()})


def unasked(case: Case, pieces: Pieces) -> str | None:
    """Why the case cannot be asked of this server as it is meant; None when it can."""
    if clashes := pieces.clashes(case):
        return f"spells {clashes} with one ordinary token, which is an added token of another case"
    return None


def _as_the_grammar_wants(case: Case) -> Case:
    dropped = GRAMMAR.get(case["id"])
    return case | {"token_pieces": [piece for piece in case["token_pieces"] if piece != dropped]}


@dataclass(frozen=True, slots=True)
class Record:
    """What was wrong with the answers: case id -> {"stream": fields, "full": fields}, ``{}`` for right."""

    wrong: dict[str, dict[str, Any]]
    as_written: dict[str, dict[str, str]]
    """The cases of :data:`GRAMMAR` with their white space: ``refused`` or ``answered``, by way."""


def record(server: Server) -> Record:
    """Ask ``server`` every case that can be asked."""
    pieces = Pieces(public.load())
    wrong: dict[str, dict[str, Any]] = {}
    as_written: dict[str, dict[str, str]] = {}
    for case in public.load():
        if unasked(case, pieces):
            continue
        url = f"{server.url}/{pair(case)}/v1"
        with OpenAI(base_url=url, api_key="none", max_retries=0, timeout=60) as asked:
            wrong[case["id"]] = _ways(asked, _as_the_grammar_wants(case), pieces)
            if case["id"] in GRAMMAR:
                given = _ways(asked, case, pieces)
                as_written[case["id"]] = {w: "refused" if "refused" in f else "answered" for w, f in given.items()}
    return Record(wrong, as_written)


def _ways(asked: OpenAI, case: Case, pieces: Pieces) -> dict[str, dict[str, Any]]:
    return {way: _wrong(asked, case, pieces.ids(case), stream=way == "stream") for way in ("stream", "full")}


def _wrong(asked: OpenAI, case: Case, ids: list[int], *, stream: bool) -> dict[str, Any]:
    try:
        result = asked.chat.completions.create(**_request(case, ids, stream=stream))
        made = client.joined(list(result)) if stream else client.whole(result)
    except openai.APIError as refusal:
        return {"refused": str(refusal)[:300]}
    answer = Answer(finish_reason=made.finish, reasoning=made.reasoning, content=made.content)
    for index, (name, arguments) in enumerate(made.calls):
        answer.add_call(index, name, arguments)
    return public.wrong(case, answer)


def _request(case: Case, ids: list[int], *, stream: bool) -> dict[str, Any]:
    cut = case.get("engine_finish") == "length"
    fields = public.request_fields(case) | {
        "model": MODEL,
        "messages": [{"role": "user", "content": _prompt(case)}],
        "temperature": 0,
        "stream": stream,
        "max_tokens": len(ids) + (0 if cut else 8),
        "extra_body": {"vllm_xargs": {"script": json.dumps(ids), "pause": _PAUSE if stream else 0.0}},
    }
    if held := case.get("holdback", 0):
        # The engine holds back one character less than its longest stop string has.
        fields["stop"] = [_NEVER * (held + 1)]
    if kwargs := case.get("chat_template_kwargs"):
        fields["extra_body"]["chat_template_kwargs"] = kwargs
    return fields


def _prompt(case: Case) -> str:
    return b"".join(map(public.piece_bytes, case["prompt_pieces"])).decode()
