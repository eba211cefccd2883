"""A whole run: which requests go out when, and what is kept of each."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from engine_overlay.canary import detectors, questions
from engine_overlay.canary.answer import Answer
from engine_overlay.canary.asking import Server
from engine_overlay.canary.detectors.budget import FIELD
from engine_overlay.canary.finding import Found
from engine_overlay.canary.judging import thinks_in_content, unjudged
from engine_overlay.canary.questions import Question

AT_ONCE = 8
"""Requests at the same time outside of the check ``parallel``, at most."""

LEAST = 4
"""Requests of one level of ``parallel``, at least."""

GIVE_UP = 8
"""Requests in a row without any answer, after which no further one is sent."""

BURST, BURST_SECONDS, BURST_EVENTS, BURST_STREAMS = 0.01, 5.0, 64, 3
"""A stream came in one burst when its text took this share of its time, if it was so long and had so many events.

Hard to reach by accident: a busy server that lets a request wait and then answers at once would look the same.
"""


@dataclass(slots=True)
class Asked:
    """One request and what is said of it. ``level``: streams at once, in the check ``parallel``; else 0."""

    question: Question
    answer: Answer
    found: list[Found]
    unjudged: str
    level: int = 0


@dataclass(slots=True)
class Run:
    """``wall`` has the seconds that each level of ``parallel`` took. ``stopped`` says why a run ended early."""

    asked: list[Asked] = field(default_factory=list)
    wall: dict[int, float] = field(default_factory=dict)
    seconds: float = 0.0
    stopped: str = ""

    @property
    def found(self) -> int:
        """Answers in which something was found."""
        return sum(bool(one.found) for one in self.asked)

    @property
    def judged(self) -> int:
        return sum(bool(one.found) or not one.unjudged for one in self.asked)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """``requests``: how often each question is asked. ``levels``: streams at once in the check ``parallel``."""

    checks: Sequence[str]
    requests: int = 3
    levels: Sequence[int] = (1, 8, 16, 32)
    own: Sequence[Question] = ()

    def batches(self, dice: random.Random) -> list[tuple[str, int, list[Question]]]:
        """(check, how many at once, questions), in the order in which they are asked."""
        at_once = min(AT_ONCE, max(self.levels))
        found = []
        for check in self.checks:
            if check == "parallel":
                for level in self.levels:
                    found.append((check, level, questions.words(max(level, LEAST), dice)))
                continue
            asked = list(self.own) if check == "own" else questions.of_check(check)
            # Each question once, then each again: neighbours in time differ, as they do among users.
            found.append((check, at_once, [question for _ in range(self.requests) for question in asked]))
        return found


Progress = Callable[[str, int, int, int], None]
"""Called with the check, how many of all requests are done, how many there are, and in how many something was found."""


async def run(server: Server, plan: Plan, into: Run, progress: Progress, seed: int | None = None) -> None:
    """Ask everything; ``into`` fills up meanwhile, so that an interrupted run can be reported."""
    start = time.perf_counter()
    batches = plan.batches(random.Random(seed))
    total = sum(len(asked) for _, _, asked in batches)
    for check, at_once, asked in batches:
        if into.stopped:
            break
        level = at_once if check == "parallel" else 0
        began = time.perf_counter()

        def done(check: str = check) -> None:
            progress(check, len(into.asked), total, into.found)

        await _batch(server, asked, at_once, level, into, done)
        if level:
            into.wall[level] = time.perf_counter() - began
        into.seconds = time.perf_counter() - start
    conclude(server, into)


async def _batch(
    server: Server, asked: Sequence[Question], at_once: int, level: int, into: Run, done: Callable[[], None]
) -> None:
    places = asyncio.Semaphore(at_once)
    words = frozenset(question.word for question in asked if question.word)

    async def one(question: Question) -> None:
        async with places:
            if into.stopped:
                return
            answer = await server.ask(question)
        found = list(detectors.look(question, answer, words - {question.word}))
        into.asked.append(Asked(question, answer, found, "" if found else unjudged(question, answer), level))
        last = into.asked[-GIVE_UP:]
        if len(last) == GIVE_UP and not any(entry.answer.status for entry in last):
            into.stopped = f"the last {GIVE_UP} requests got no answer at all"
        done()

    done()
    await asyncio.gather(*(one(question) for question in asked))


def conclude(server: Server, into: Run) -> None:
    """What only all answers together tell."""
    answers = [one.answer for one in into.asked]
    thinks = any(answer.reasoning.strip() or thinks_in_content(answer) for answer in answers)
    thinks = thinks or any(found.kind == "thoughts in content" for one in into.asked for found in one.found)
    for one in into.asked:
        if one.question.fields.get(FIELD) is None:
            continue
        if not thinks:
            _take_out(one, "budget refused", f"the model does not think; refused ({one.answer.refusal[:80]})")
        if not server.engine:
            _take_out(one, "budget exceeded", "longer than the budget, but the server may not know that field")
    streams = [one for one in into.asked if _is_long_stream(one.answer)]
    if len(streams) >= BURST_STREAMS and all(_in_one_burst(one.answer) for one in streams):
        first, answer = streams[0], streams[0].answer
        count, last = len(answer.gaps) + 1, answer.pieces[-1].seconds
        said = f"first text at {answer.first:.2f} s, all {count} events by {last:.2f} s; so in {len(streams)} streams"
        first.found.append(Found("buffered", said))


def _take_out(one: Asked, kind: str, reason: str) -> None:
    if any(found.kind == kind for found in one.found):
        one.found = [found for found in one.found if found.kind != kind]
        one.unjudged = "" if one.found else reason


def _is_long_stream(answer: Answer) -> bool:
    many = answer.streamed and answer.complete and len(answer.gaps) + 1 >= BURST_EVENTS
    return many and answer.seconds >= BURST_SECONDS


def _in_one_burst(answer: Answer) -> bool:
    return answer.pieces[-1].seconds - answer.pieces[0].seconds < BURST * answer.seconds


def percentile(values: Iterable[float], share: float) -> float | None:
    """The value that ``share`` of the values do not exceed; None of none."""
    ordered = sorted(values)
    if not ordered:
        return None
    return ordered[min(len(ordered) - 1, max(0, -int(-share * len(ordered) // 1) - 1))]
