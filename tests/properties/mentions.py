"""Answers that only talk about tags, in every place and many words, streamed and full through the engine found here.

    python -m tests.properties.mentions OUT

Nothing in them is a call; the one real marker is the special end of reasoning. Runs in a process of one release and
writes JSON: how many answers there were, and those of which anything was lost or invented.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

from tests.properties import dialogues, judge
from tests.properties.direct import Direct

SENTENCES = (
    "The tag `{}` is markup.",
    'In JSON: {{"tag": "{}"}} here.',
    "See:\n```\n{}\n```\nThat is all.",
    "When I print {} then it folds.",
    'They call it "{}" there.',
)
PLACES = ("reasoning", "content", "both")
"""Formats without reasoning have the second one alone."""


def cases(name: str) -> Iterator[tuple[dict[str, Any], list[int]]]:
    """(case, cuts) for every sentence, word and place of one format; how it is cut comes from the name of each."""
    form = dialogues.FORMATS[name]
    for sentence in SENTENCES:
        for word in dict.fromkeys((*form.markers, *form.words)):
            for place in PLACES if form.end else PLACES[1:2]:
                rng = Random(f"{name} {sentence} {word} {place}")
                said = sentence.format(word)
                reasoning = "" if not form.end else said if place != "content" else "Let me think."
                content = said if place != "reasoning" else "That is it."
                pieces = [
                    *(dialogues.split(rng, reasoning, form.markers, 4) + [form.end] if form.end else ()),
                    *dialogues.split(rng, f"\n\n{content}", form.markers, 4),
                ]
                cuts, left = [], len(pieces)
                while left:
                    cuts.append(min(left, rng.choice((1, 1, 2, 3, 7))))
                    left -= cuts[-1]
                expect = {"reasoning": reasoning, "content": content, "tool_calls": [], "finish_reason": "stop"}
                yield (
                    {
                        "id": f"mention-{name}",
                        "kind": "property",
                        "reasoning_parser": form.reasoning_parser,
                        "tool_parser": form.tool_parser,
                        "tools": dialogues.TOOLS if form.tool_parser else None,
                        "prompt_pieces": dialogues.prompt_of(form),
                        "atomic": list(form.markers),
                        "text": f"{reasoning}{form.end}\n\n{content}",
                        "token_pieces": pieces,
                        "deltas": cuts,
                        "expect": expect,
                        "why": "made by tests/properties/mentions.py",
                    },
                    cuts,
                )


def main(out: str) -> None:
    from engine_overlay import engines

    code = Direct(engines.installed()[0].name)
    found: dict[str, Any] = {"answers": 0, "wrong": []}
    for name, form in dialogues.FORMATS.items():
        if not code.covers(form.reasoning_parser, form.tool_parser):
            continue
        for case, cuts in cases(name):
            found["answers"] += 1
            difference = judge.verdict(case, code.both(case, cuts))
            if difference:
                found["wrong"].append({**difference, "case": case})
    Path(out).write_text(json.dumps(found, ensure_ascii=False), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1])
