"""The public cases: how a case becomes deltas, and when an answer to it is right.

A case gives a model's output as ``token_pieces``. A piece that equals an entry of ``atomic`` is that added
token of the model, any other piece an ordinary token, and ``{"hex": "f09f"}`` raw bytes of a character that
several tokens share.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

CHUNK_SIZES = (1, 2, 3, 7)
"""Tokens per delta; every case is also replayed as one delta, and cut as it says itself, if it does."""

Case = dict[str, Any]


def load(folder: Path | None = None, only: tuple[str, ...] = ()) -> list[Case]:
    """All cases of ``folder``, or those that come with the package, in the order of their names.

    ``only`` keeps those whose id starts with one of it.
    """
    files = (folder or resources.files("engine_overlay.verify.data")).iterdir()
    named = sorted((file for file in files if file.name.endswith(".json")), key=lambda file: file.name)
    cases = [json.loads(file.read_text(encoding="utf-8")) for file in named]
    return [case for case in cases if not only or case["id"].startswith(only)]


def piece_bytes(piece: str | dict[str, str]) -> bytes:
    return piece.encode() if isinstance(piece, str) else bytes.fromhex(piece["hex"])


def cuts(case: Case) -> dict[str, list[int]]:
    """The ways to cut the case into deltas: name -> number of tokens in each delta."""
    total = len(case["token_pieces"])
    ways = {str(size): _even(total, size) for size in CHUNK_SIZES}
    ways["all"] = [total]
    if isinstance(case["deltas"], list):
        ways["own"] = case["deltas"]
    return ways


def every_cut(case: Case) -> dict[str, list[int]]:
    """:func:`cuts`, and every way to cut the case into two deltas."""
    total = len(case["token_pieces"])
    return cuts(case) | {f"{first}|": [first, total - first] for first in range(1, total)}


def _even(total: int, size: int) -> list[int]:
    return [min(size, total - start) for start in range(0, total, size)]


def delta_texts(case: Case, groups: list[int]) -> list[str]:
    """The text of each delta, as the engine's detokenizer would release it.

    Only whole characters are released, and the last ``holdback`` characters wait until the end, which is
    what a request with a stop string gets.
    """
    texts: list[str] = []
    pieces = iter(case["token_pieces"])
    behind = case.get("holdback", 0)
    raw, sent = b"", 0
    for position, size in enumerate(groups, start=1):
        raw += b"".join(piece_bytes(next(pieces)) for _ in range(size))
        if position == len(groups):
            known = raw.decode("utf-8", "replace")
            until = len(known)
        else:
            known = raw.decode("utf-8", "ignore")
            until = max(sent, len(known) - behind)
        texts.append(known[sent:until])
        sent = until
    return texts


def full_text(case: Case) -> str:
    return b"".join(map(piece_bytes, case["token_pieces"])).decode("utf-8", "replace")


def request_fields(case: Case) -> dict[str, Any]:
    """The body of the chat completion request that the case belongs to."""
    fields: dict[str, Any] = {"model": "model", "messages": [{"role": "user", "content": "hi"}]}
    if case["tools"]:
        fields["tools"] = [{"type": "function", "function": tool} for tool in case["tools"]]
        fields["tool_choice"] = case.get("tool_choice", "auto")
    return fields


@dataclass
class Answer:
    """What a client put together from the deltas of a stream, or from one full message."""

    finish_reason: str | None = None
    reasoning: str = ""
    content: str = ""
    calls: dict[int, list[str]] | None = None

    def add(self, reasoning: str | None, content: str | None) -> None:
        self.reasoning += reasoning or ""
        self.content += content or ""

    def add_call(self, index: int, name: str | None, arguments: str | None) -> None:
        self.calls = self.calls or {}
        call = self.calls.setdefault(index, ["", ""])
        call[0] += name or ""
        call[1] += arguments or ""

    def seen(self) -> dict[str, Any]:
        """The answer in the shape of a case's ``expect``; white space around texts does not count."""
        calls = [self.calls[index] for index in sorted(self.calls)] if self.calls else []
        return {
            "reasoning": self.reasoning.strip(),
            "content": self.content.strip(),
            "tool_calls": [{"name": name, "arguments": _arguments(text)} for name, text in calls],
            "finish_reason": self.finish_reason,
        }


def _arguments(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return f"not JSON: {text}"


def wrong(case: Case, answer: Answer) -> dict[str, Any]:
    """The fields of the answer that differ from what the case expects, with what came instead; empty when
    right.
    """
    expect, seen = case["expect"], answer.seen()
    want = {
        "reasoning": (expect.get("reasoning") or "").strip(),
        "content": (expect.get("content") or "").strip(),
        "tool_calls": expect.get("tool_calls") or [],
    }
    if case.get("check_finish", True) and expect.get("finish_reason"):
        want["finish_reason"] = expect["finish_reason"]
    # Equality of 1, 1.0 and true must not hide a wrong JSON type.
    return {field: seen[field] for field, value in want.items() if _typed(seen[field]) != _typed(value)}


def _typed(value: Any) -> str:
    return json.dumps(value, sort_keys=True, ensure_ascii=False)


def kinds(cases: list[Case]) -> Iterator[tuple[str, str]]:
    for case in cases:
        yield case["id"], case["kind"]


def is_spelled(kind: str) -> bool:
    """Whether cases of this kind are about markers that arrive spelled out in ordinary tokens."""
    return kind.startswith("A ") or (kind.startswith("J ") and kind.endswith(" fragmented"))
