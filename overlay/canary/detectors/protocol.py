"""The stream itself: how it ends, whether its events can be read, whether they come in order."""

from __future__ import annotations

from collections.abc import Iterator

from engine_overlay.canary.answer import Answer
from engine_overlay.canary.finding import Found
from engine_overlay.canary.questions import Question

_ODD = {
    "cut event": ("broken event", "the last event is cut off"),
    "no json": ("broken event", "an event is no JSON object of a completion"),
    "no text": ("invalid arguments", "the arguments of a call come as a JSON value, and not as its text"),
    "error event": ("server error", "an error in the middle of the stream"),
    "after finish": ("out of order", "text behind finish_reason"),
    "two finishes": ("out of order", "two finish reasons for one answer"),
    "after done": ("out of order", "an event behind [DONE]"),
    "no stream": ("no stream", "the answer to a stream is no text/event-stream"),
    "no answer": ("unreadable answer", "status 200 and no chat completion"),
}


def look(question: Question, answer: Answer) -> Iterator[Found]:
    if answer.status == 0:
        if answer.timed_out:
            yield Found("silence", f"nothing came in {answer.seconds:.0f} s")
        else:
            yield Found("broke off", f"no answer: {answer.broke}")
        return
    if answer.status != 200:
        if answer.status >= 500 and answer.status != 503:
            yield Found("server error", f"status {answer.status}", answer.refusal)
        return
    if answer.timed_out and not answer.pieces:
        yield Found("silence", f"the stream began, and nothing came in {answer.seconds:.0f} s")
    seen = set()
    for name, evidence in answer.odd:
        if name in _ODD and name not in seen:
            seen.add(name)
            kind, said = _ODD[name]
            yield Found(kind, said, events=evidence)
    if answer.timed_out or seen & {"no answer", "error event"}:
        return
    if answer.broke:
        yield Found("broke off", f"in the middle of the stream: {answer.broke}", events=_last(answer))
        return
    for name, evidence in answer.odd:
        if name == "no done" and "cut event" not in seen:
            yield Found("no [DONE]", "the last event", events=evidence)
    if answer.finish is None and "cut event" not in seen:
        yield Found("no finish_reason", "the answer does not say why it ended", events=_last(answer))


def _last(answer: Answer) -> str:
    return list(answer.events.values())[-1].decode("utf-8", "replace").strip()[:600] if answer.events else ""
