"""Answers made of choices: chat completions and completions, as streams and as a whole."""

from __future__ import annotations

from typing import Any

from engine_overlay.proxy.edges import Edges, End, clean
from engine_overlay.proxy.loops import Loop
from engine_overlay.proxy.options import Options
from engine_overlay.proxy.request import CHAT, Asked
from engine_overlay.proxy.stream import DONE, Held, Stream, compact, end_of, tell

REASONING = ("reasoning", "reasoning_content")


class Choice:
    """One of the ``n`` answers."""

    __slots__ = ("called", "edges", "finished", "first", "loop", "reasoned", "stopped")

    def __init__(self, options: Options, asked: Asked) -> None:
        self.edges: Edges | None = None
        self.first = asked.start
        self.reasoned = self.called = self.finished = self.stopped = False
        self.loop = Loop(options.empty_thoughts, options.blank_deltas, tools=asked.tools, tags=options.tags)

    def end(self, end: End) -> None:
        """The text ends here; what comes later is another one, at its start."""
        if self.edges is not None:
            self.edges.end(end)
            self.edges, self.first = None, True


class ChoicesStream(Stream):
    def __init__(self, options: Options, asked: Asked, kind: str) -> None:
        super().__init__(options, asked)
        self._chat = kind == CHAT
        self._choices: dict[int, Choice] = {}
        # Counted as they come, so that an event costs what is in it, however many choices there are.
        self._open: set[Choice] = set()
        self._finished = self._stopped = 0
        self._others = False
        """Whether there are choices that are not looked at, so that nobody knows whether all have finished."""
        self._usage: Any = None

    def finish(self) -> None:
        for choice in self._open:
            choice.end(End.CUT)
        self._open.clear()

    def read(self, held: Held) -> list[bytes] | None:
        data = held.data
        choices = data.get("choices")
        if not isinstance(choices, list):
            return []
        self._usage = data.get("usage") or self._usage
        behind: list[bytes] = []
        kept: list[Any] = []
        for part in choices:
            index = part.get("index", 0) if isinstance(part, dict) else None
            choice = self._choice(index)
            if choice is not None and choice.stopped:
                continue
            kept.append(part)
            if choice is None:
                continue
            look = self._look_chat if self._chat else self._look_text
            loops = look(choice, part, held)
            if reason := part.get("finish_reason"):
                choice.end(end_of(reason))
                self._finish(choice)
            elif loops and not (choice.edges and choice.edges.in_code):
                choice.end(End.WHOLE)
                choice.stopped = True
                self._stopped += 1
                self._finish(choice)
                behind.append(self._closing(data, index, choice))
                tell("it says nothing any more (empty thoughts or deltas in a row)")
        if self._stopped and self._all_finished():
            if self._usage:
                behind.append(self._event(data, [], usage=self._usage))
            behind.append(DONE)
            self.stopped = True
        if len(kept) == len(choices):
            return behind
        choices[:] = kept
        held.changed = True
        if choices or not behind:
            return behind if choices else None
        # Nothing of the event is left, but something follows it.
        held.event, held.changed = b"", False
        return behind

    def _choice(self, index: object) -> Choice | None:
        """What is known of a choice; None for one that is not looked at."""
        if not isinstance(index, int):
            return None
        choice = self._choices.get(index)
        if choice is None:
            if len(self._choices) >= self.options.max_choices:
                self._others = True
                return None
            choice = self._choices[index] = Choice(self.options, self.asked)
        return choice

    def _finish(self, choice: Choice) -> None:
        self._finished += not choice.finished
        choice.finished = True

    def _all_finished(self) -> bool:
        return not self._others and self.asked.choices <= len(self._choices) == self._finished

    def _look_chat(self, choice: Choice, part: dict[str, Any], held: Held) -> bool:
        delta = part.get("delta")
        if not isinstance(delta, dict):
            return False
        loops = spoke = False
        reasoning = next((t for key in REASONING if isinstance(t := delta.get(key), str) and t), "")
        if reasoning:
            spoke = True
            choice.end(End.WHOLE)
            choice.reasoned = choice.reasoned or not reasoning.isspace()
            loops = choice.loop.text(reasoning)
        if isinstance(content := delta.get("content"), str) and content:
            spoke = True
            loops = self._text(choice, held, delta, "content") or loops
        if delta.get("tool_calls") or delta.get("function_call"):
            spoke = choice.called = True
            choice.end(End.WHOLE)
            choice.loop.something()
        # With token ids an empty delta says that the model says something that is not shown yet.
        return loops if spoke or part.get("token_ids") else choice.loop.nothing()

    def _look_text(self, choice: Choice, part: dict[str, Any], held: Held) -> bool:
        if isinstance(text := part.get("text"), str) and text:
            return self._text(choice, held, part, "text")
        return False if part.get("token_ids") else choice.loop.nothing()

    def _text(self, choice: Choice, held: Held, holder: dict[str, Any], key: str) -> bool:
        if self.asked.edges:
            if choice.edges is None:
                choice.edges = Edges(self.options.tags, reasoned=choice.reasoned, start=choice.first)
                self._open.add(choice)
            held.add(choice.edges, holder, key)
        return choice.loop.text(holder[key])

    def _closing(self, data: dict[str, Any], index: int, choice: Choice) -> bytes:
        """The last event of a choice that was ended here: cut off by a limit, unless it has made its calls."""
        reason = "tool_calls" if choice.called else "length"
        said: dict[str, Any] = {"delta": {}} if self._chat else {"text": ""}
        return self._event(data, [{"index": index, **said, "logprobs": None, "finish_reason": reason}])

    @staticmethod
    def _event(data: dict[str, Any], choices: list[dict[str, Any]], **more: Any) -> bytes:
        head = {key: data[key] for key in ("id", "object", "created", "model") if key in data}
        return b"data: " + compact(head | {"choices": choices} | more) + b"\n\n"


def clean_choices(data: dict[str, Any], options: Options, asked: Asked) -> bool:
    """Take the stray tags out of a whole answer; whether there were any."""
    changed = False
    choices = data.get("choices")
    for part in choices if isinstance(choices, list) and asked.edges else ():
        if not isinstance(part, dict):
            continue
        holder, key = (part["message"], "content") if isinstance(part.get("message"), dict) else (part, "text")
        text = holder.get(key)
        if not isinstance(text, str) or not text:
            continue
        reasoned = any(isinstance(t := holder.get(name), str) and t.strip() for name in REASONING)
        end = end_of(part.get("finish_reason"))
        holder[key] = clean(text, end, options.tags, reasoned=reasoned, start=asked.start)
        changed = changed or holder[key] != text
    return changed
