"""Answers of a healthy model to every question of the canary: thoughts, calls, code, prose about tags."""

from __future__ import annotations

import json

from engine_overlay.canary import questions

Rules = list[tuple[str, list[str]]]
"""(words of the prompt, answers in turn); see :mod:`tests.canary.prompted_logits`."""

_END = "</think>\n\n"

_TEXT = {
    "17 times 23": [f"17 times 20 is 340, and 51 more.{_END}17 times 23 is 391."],
    "capital of France": [f"Paris, the Seine.{_END}Paris is the capital of France, and the Seine runs through it."],
    "one JSON object": [
        f'Rome is in Italy.{_END}{{"city": "Rome", "country": "Italy"}}',
        f'Rome.{_END}```json\n{{"city": "Rome", "country": "Italy"}}\n```',
    ],
    "larger of two numbers": [
        f"Easy: a > b.{_END}```python\ndef larger(a, b):\n    return a if a > b else b\n```",
        f"I use max.{_END}```python\ndef larger(a: float, b: float) -> float:\n    return max(a, b)\n```\n",
    ],
    "small HTML page": [f"A list: <ul>.{_END}```html\n<h1>Fruit</h1>\n<ul><li>pear</li><li>fig</li></ul>\n```"],
    "three reasons": [f"Health.{_END}1. It keeps your head clear.\n2. It is good for you.\n3. It costs you nothing."],
    "German and into Japanese": [f"Guten Morgen.{_END}Guten Morgen, liebe Freunde.\n\n\u304a\u306f\u3088\u3046\u3002"],
    "Say hello": [f"A greeting.{_END}Hello."],
}  # fmt: skip

_QUOTES = {
    "mean in the output": [
        f"The tag `~</think>` is the end.{_END}The tag `~</think>` ends the thoughts of the model.",
        f'They ask of "~</think>", which ends a thought.{_END}`~</think>` marks where thinking ends.',
    ],
    "splits a string at": [
        f"I split at `~</think>`.{_END}```python\nrest = text.split('~</think>')[-1]\n```\nIt takes what is behind.",
        f'Code.{_END}```python\na, b = text.split("~</think>", 1)\n# ~<think> was before\n```\nIt cuts it in two.',
    ],
    "A model prints": [
        f"A parser looks for `~<tool_call>`.{_END}A parser needs `~<tool_call>` to tell a call from text.",
        f"Simple.{_END}Without `~<tool_call>` and `~</tool_call>` a parser cannot see where the call is.",
    ],
}

_LOOPS = {
    "seahorse": [f"Unicode has a fish and a horse, but no seahorse.{_END}No, there is no emoji of a seahorse."],
    "This sentence is false": [f"If it is true it is false. If it is false it is true.{_END}Neither."],
    "1, 11, 21": [f"Each says the one before.{_END}Say what you see: 13112221, then 1113213211."],
    "sixty different animals": [
        "Sixty." + _END + "\n".join(f"{n}. animal number {n * 7}" for n in range(1, 61)),
        "Sixty." + _END + "\n".join(["cat", "dog", "cow", "ant", "bee", "fox", "owl", "pig", "hen", "elk"]),
    ],
    "no vowel, no consonant": [f"Every letter is one or the other.{_END}There is none."],
    "share a bill of 30": [f"27 has the 2 in it.{_END}None is missing: 25 and 2 is 27, and 3 came back."],
}

_LONG = " ".join(f"{n} can be divided by {3 if n % 3 == 0 else 5}," for n in range(3, 61) if n % 3 == 0 or n % 5 == 0)
_BUDGET = {
    # Without an end of its own: the budget ends the thought, and the rest is the answer.
    "numbers from 1 to 60": [f"{_LONG} so there are 28 of them."],
}

_WORDS = {
    "code word": [
        f"I write {{word}}.{_END}{{word}}. It is wide and old. Many people like it.",
        f"They want {{word}} once.{_END}{{word}}\n\nOne sentence. And another one, which is longer.",
    ]
}


def call(name: str, value: str, parameter: str = "value") -> str:
    """A call in the format of Qwen3-Coder."""
    return (
        f"<tool_call>\n<function={name}>\n<parameter={parameter}>\n{value}\n</parameter>\n</function>\n</tool_call>"
    )


def written(kind: str) -> str:
    """The value of a type as a model of that format writes it."""
    value = questions.TYPES[kind][1]
    return value if isinstance(value, str) else json.dumps(value)


def calls() -> Rules:
    """Those of ``integer``, which ``choice`` asks for too, have no white space that a grammar would not let through."""
    found = []
    for kind in questions.TYPES:
        made = call(f"record_{kind}", written(kind))
        gap = "" if kind == "integer" else "\n\n"
        thoughts = [f"I call record_{kind}.</think>{gap}", "The tool.</think>"]
        found.append((f"Call the tool record_{kind} ", [thought + made for thought in thoughts]))
    return found


def rules() -> Rules:
    """All of them. Those of ``budget`` come first: one of its questions is also one of ``text``."""
    plain = {**_BUDGET, **_TEXT, **_QUOTES, **_LOOPS, **_WORDS}
    return [*plain.items(), *calls()]
