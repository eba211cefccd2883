"""Gateways that stand in front of engines' servers: which of them parse answers, as far as their command line says."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

_ROUTERS = ("smg", "sgl-model-gateway", "sglang-router", "vllm-router")
_ROUTER_PACKAGES = ("smg", "sglang_router", "vllm_router")
_DYNAMO = ("dynamo.frontend", "dynamo.vllm")


@dataclass(frozen=True, slots=True)
class Gateway:
    """``parses``: why answers are parsed by it, or by others than the servers behind it; empty where it hands on what
    they say. ``step`` is what to do then.
    """

    name: str
    parses: str
    step: str = ""


def of(words: Sequence[str]) -> Gateway | None:
    """The gateway that these words start; None for none that is known."""
    for i, word in enumerate(words):
        after = words[i + 1 :]
        if Path(word).name in _ROUTERS:
            return _router(Path(word).name, after)
        if word == "-m" and after:
            if after[0].partition(".")[0] in _ROUTER_PACKAGES:
                return _router(after[0].partition(".")[0], after[1:])
            if after[0] in _DYNAMO:
                return _dynamo(after[0], after[1:])
    return None


def _router(name: str, words: Sequence[str]) -> Gateway:
    # Over HTTP it is asked and answered in the words of the API; over gRPC it is given token ids.
    if any("grpc://" in word for word in words):
        return Gateway(name, f"{name} is given token ids by grpc:// and parses them itself", "give it http:// workers")
    return Gateway(name, "")


def _dynamo(name: str, words: Sequence[str]) -> Gateway:
    if name == "dynamo.vllm":
        return Gateway(name, "a Dynamo worker gives token ids, which Dynamo's front end parses", _CHOOSE)
    chosen = ""
    for i, word in enumerate(words):
        key, equals, value = word.partition("=")
        if key == "--dyn-chat-processor":
            chosen = value if equals else "".join(words[i + 1 : i + 2])
    if chosen == "vllm":
        return Gateway(name, "")
    return Gateway(name, f"the front end parses with Dynamo's own chat processor ({chosen or 'the default'})", _CHOOSE)


_CHOOSE = "start dynamo.frontend with --dyn-chat-processor vllm, in an environment that has the overlay"
