"""Faults planted in the answers of the live model, and what the canary must say of each."""

from __future__ import annotations

from dataclasses import dataclass, field

from tests.canary import healthy
from tests.canary.healthy import call

_END = "</think>\n\n"
_HEALTHY = healthy.rules()
_INTEGER = call("record_integer", "7")
_SPELLED = _INTEGER.replace("<tool", "~<tool").replace("</tool", "~</tool")
_NUMBERS = " ".join(str(n * n) for n in range(200))
_LONG = "It is a product of two primes, and one of them ends in three while the other ends in seven. " * 3


@dataclass(frozen=True)
class Planted:
    """``says``: words of a prompt -> what the model answers. ``kinds``: what the canary must find. ``pair``: parsers of
    the server, if not the usual ones.
    """

    name: str
    checks: str
    says: dict[str, str]
    kinds: frozenset[str]
    pair: str = ""
    rules: list[tuple[str, list[str]]] = field(init=False)

    def __post_init__(self) -> None:
        mine = [(words, [said]) for words, said in self.says.items()]
        object.__setattr__(self, "rules", [*mine, *_HEALTHY])


def _fault(name: str, checks: str, says: dict[str, str], kinds: str, pair: str = "") -> Planted:
    return Planted(name, checks, says, frozenset(kinds.split(", ")), pair)


def _json(value: str) -> str:
    return f'<tool_call>\n{{"name": "record_integer", "arguments": {{"value": {value}}}}}\n</tool_call>'


# What the stock engine makes of answers that are right, or spelled in sub-words; the overlay mends all of it.
ENGINE = [
    _fault("end of reasoning spelled", "text", {"17 times 23": "340 and 51.~</think>\n\n17 times 23 is 391."},
           "answer in reasoning"),
    _fault("end spelled before a call", "types", {"record_integer": f"I call.~</think>\n\n{_INTEGER}"},
           "tag in reasoning"),
    _fault("end and call spelled", "types", {"record_integer": f"I call.~</think>\n\n{_SPELLED}"}, "call in reasoning"),
    _fault("call spelled", "types", {"record_integer": f"I call.</think>\n\n{_SPELLED}"}, "tag"),
    _fault("call with a stop string", "stop", {}, "tag"),
    _fault("quoted tag", "quotes", {}, "cut at a quoted tag"),
    _fault("budget behind a spelled end", "budget", {"17 times 23": f"340 and 51.~</think>{_LONG}"},
           "budget out of place"),
    _fault("reference", "types", {}, "wrong type"),
    _fault("call cut off by the limit", "types",
           {"record_string": f"Now.{_END}{call('record_string', _NUMBERS)}"}, "lost arguments"),
]  # fmt: skip

# What a model or its settings do, which the overlay does not change.
MODEL = [
    _fault("loop in the answer", "loops", {"seahorse": f"A fish.{_END}\fWait, I mean the fish here. "}, "loop"),
    _fault("loop in the thought", "loops", {"This sentence is": "Hm.\fBut if it is true it is false. "}, "loop"),
    _fault("empty thoughts", "loops", {"1, 11, 21": f"Hm.{_END}\f~<think>\n~</think>\n"}, "empty thoughts"),
    _fault("white space", "loops", {"seahorse": f"Hm.{_END}\f\n"}, "blank deltas"),
    _fault("thoughts without an end", "text", {"capital of France": "It is Paris, as we know, on the Seine."},
           "answer in reasoning"),
    _fault("a part of a tag", "text", {"capital of France": f"Paris.{_END}hink>\n\nParis, the Seine."}, "tag"),
    _fault("a tag at the end", "text", {"capital of France": f"Paris.{_END}It is Paris.\n~</tool_call>"}, "tag"),
    _fault("a block without a call", "types", {"record_integer": f"Now.{_END}<tool_call>\nseven\n</tool_call>"},
           "nothing delivered"),
    _fault("a call without arguments", "types",
           {"record_integer": f"Now.{_END}<tool_call>\n<function=record_integer>\n</function>\n</tool_call>"},
           "lost arguments"),
    _fault("no reasoning parser", "text", {}, "thoughts in content", "+"),
    _fault("another model's tool parser", "types", {}, "nothing delivered", "qwen3+hermes"),
    _fault("a word as a number", "types", {"record_integer": "Now." + _END + _json('"seven"')}, "wrong type",
           "qwen3+hermes"),
    _fault("JSON cut off", "types", {"record_integer": "Now." + _END + _json("[7")}, "wrong type",
           "qwen3+hermes"),
]  # fmt: skip
