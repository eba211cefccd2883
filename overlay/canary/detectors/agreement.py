"""What the answer says of itself against what is in it: finish reason and calls, names and ids."""

from __future__ import annotations

from collections.abc import Iterator

from engine_overlay.canary.answer import Answer
from engine_overlay.canary.finding import Found
from engine_overlay.canary.questions import Question


def look(question: Question, answer: Answer) -> Iterator[Found]:
    calls, choice = answer.calls, question.fields.get("tool_choice", "auto")
    last = _last(answer)
    if answer.finish == "tool_calls" and not calls:
        yield Found("no calls", "content " + repr(answer.content[:80]), events=last)
    if not calls:
        if answer.complete and _must_call(choice) and answer.finish == "stop":
            said = f"tool_choice is {choice if isinstance(choice, str) else 'a named tool'}, and there is no call"
            yield Found("call left out", said, answer.content[:120] or answer.reasoning[-120:], events=last)
        return
    if not question.tools or choice == "none":
        said = f"a call to {calls[0].name!r}"
        yield Found("undeclared call", said, calls[0].arguments[:120], "arguments 0", 0, 1)
        return
    if answer.complete and answer.finish == "stop" and choice == "auto":
        yield Found("wrong finish", "finish_reason is stop", calls[0].name, events=last)
    ids = [call.id for call in calls]
    for index, call in enumerate(calls):
        name = f"arguments {index}"
        if not call.name:
            yield Found("broken call", "a call without a name", call.arguments[:120], name, 0, 1)
        elif call.nameless:
            yield Found("broken call", "arguments before the name of the tool", call.arguments[:120], name, 0, 1)
        elif not call.id:
            yield Found("broken call", f"a call to {call.name} without an id", call.arguments[:120], name, 0, 1)
        elif ids.index(call.id) != index:
            yield Found("broken call", f"two calls with the id {call.id}", call.arguments[:120], name, 0, 1)
        else:
            continue
        return


def _must_call(choice: object) -> bool:
    return choice == "required" or isinstance(choice, dict)


def _last(answer: Answer) -> str:
    if not answer.streamed:
        return "\n".join(event.decode("utf-8", "replace")[:600] for event in answer.events.values())
    shown = [event.decode("utf-8", "replace").strip()[:300] for event in answer.events.values()]
    ends = [line for line in shown if '"finish_reason"' in line and '"finish_reason":null' not in line]
    return "\n".join(ends[-1:] or shown[-2:])
