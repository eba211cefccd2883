"""What is not judged, and why: a model that declines is no fault of the server."""

from __future__ import annotations

from engine_overlay.canary.answer import Answer
from engine_overlay.canary.detectors.budget import FIELD
from engine_overlay.canary.detectors.tags import TAGS
from engine_overlay.canary.questions import Question


def unjudged(question: Question, answer: Answer) -> str:
    """Why an answer in which nothing was found says nothing about its check; empty when it does."""
    if answer.status in (429, 503):
        return f"the server is busy ({answer.status})"
    if answer.status != 200:
        return f"refused ({answer.status}: {answer.refusal[:120]})"
    if answer.timed_out:
        return "slower than --timeout"
    said = bool(answer.content.strip() or answer.calls)
    if answer.finish == "length" and not said:
        return "the thoughts took all of --max-tokens"
    if not said and not answer.reasoning.strip():
        return "an empty answer"
    if thinks_in_content(answer):
        return "the thoughts come inside the content (no reasoning parser)"
    if question.calls and not answer.calls:
        cut = answer.finish == "length"
        return "cut off by --max-tokens before a call" if cut else "the model called no tool"
    if question.calls and question.calls not in [call.name for call in answer.calls]:
        return "the model called another tool"
    if question.calls and not answer.complete:
        return "cut off by --max-tokens in the call"
    if FIELD in question.fields and not answer.reasoning.strip():
        return "the model did not think"
    return ""


def thinks_in_content(answer: Answer) -> bool:
    """Whether the answer begins with an opener of thought and no reasoning came apart from it."""
    start = answer.content.lstrip()
    opened = any(start.startswith(f"<{name}>") for name in TAGS.thoughts)
    return opened and not answer.reasoning.strip()
