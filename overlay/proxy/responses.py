"""Answers of the Responses API, as streams and as a whole.

A text comes in deltas and then again, whole, in up to four events; what was removed from the deltas is removed there.
"""

from __future__ import annotations

from typing import Any

from engine_overlay.proxy.edges import Edges, End, clean
from engine_overlay.proxy.loops import Loop
from engine_overlay.proxy.options import Options
from engine_overlay.proxy.request import Asked
from engine_overlay.proxy.stream import Held, Stream, compact, tell

MAX_TEXT = 1024 * 1024
"""Characters of one text that are kept, to say it again when a stream is ended; a longer one is not ended."""

KINDS = {"response.output_text.delta": "output_text", "response.reasoning_text.delta": "reasoning_text"}
LAST = ("response.completed", "response.incomplete", "response.failed")


class ResponsesStream(Stream):
    def __init__(self, options: Options, asked: Asked) -> None:
        super().__init__(options, asked)
        self._loop = Loop(options.empty_thoughts, options.blank_deltas, tools=asked.tools, tags=options.tags)
        self._edges: dict[tuple[int, int], Edges] = {}
        self._unfinished: set[Edges] = set()
        self._reasoned = False
        self._response: dict[str, Any] = {}
        self._items: dict[int, Any] = {}
        self._open: dict[int, Any] = {}
        self._said: list[str] = []
        self._length = 0

    def finish(self) -> None:
        for edges in self._unfinished:
            edges.end(End.CUT)
        self._unfinished.clear()

    def read(self, held: Held) -> list[bytes] | None:
        data = held.data
        kind = data.get("type")
        if kind in KINDS:
            return self._delta(held, data, KINDS[kind])
        self._loop.something()
        index = data.get("output_index")
        if isinstance(data.get("response"), dict):
            self._response = data["response"]
            if kind in LAST:
                self.finish()
                held.changed = self._fix_items(enumerate(_list(data["response"].get("output"))))
        elif kind == "response.output_item.added" and isinstance(index, int):
            self._open = {index: data.get("item")}
        elif kind == "response.output_text.done":
            self._end(data)
            held.changed = self._fix(data, self._key(data))
        elif kind in ("response.content_part.done", "response.content_part.added"):
            self._said, self._length = [], 0
            part = data.get("part")
            held.changed = isinstance(part, dict) and self._fix(part, self._key(data))
        elif kind == "response.output_item.done" and isinstance(index, int):
            held.changed = self._fix_items([(index, data.get("item"))])
            if len(self._items) < self.options.max_choices:
                self._items[index] = data.get("item")
            self._open = {}
        return []

    @staticmethod
    def _key(data: dict[str, Any]) -> tuple[int, int]:
        return _number(data.get("output_index")), _number(data.get("content_index"))

    def _delta(self, held: Held, data: dict[str, Any], kind: str) -> list[bytes]:
        text = data.get("delta")
        if not isinstance(text, str):
            return []
        loops = self._loop.text(text)
        edges = None
        if kind == "reasoning_text":
            self._reasoned = self._reasoned or bool(text.strip())
        elif text:
            edges = self._edges_of(self._key(data))
            if edges is not None:
                held.add(edges, data, "delta")
        self._length += len(text)
        if text and self._length <= MAX_TEXT:
            self._said.append(text)
        if not loops or (edges and edges.in_code) or self._length > MAX_TEXT:
            return []
        self.finish()
        self.stopped = True
        tell("it says nothing any more (empty thoughts or deltas in a row)")
        return self._closing(data, kind)

    def _edges_of(self, key: tuple[int, int]) -> Edges | None:
        edges = self._edges.get(key)
        if edges is None and len(self._edges) < self.options.max_choices:
            edges = self._edges[key] = Edges(self.options.tags, reasoned=self._reasoned, start=self.asked.start)
            self._unfinished.add(edges)
        return edges

    def _end(self, data: dict[str, Any]) -> None:
        # Whether a limit cut the text is said only later, so it may have been.
        if edges := self._edges.get(self._key(data)):
            edges.end(End.CUT)

    def _fix(self, holder: dict[str, Any], key: tuple[int, int]) -> bool:
        text, edges = holder.get("text"), self._edges.get(key)
        if not isinstance(text, str) or edges is None or not edges.removed or edges.total != len(text):
            return False
        holder["text"] = edges.kept(text, 0, len(text))
        return True

    def _fix_items(self, items: Any) -> bool:
        found = False
        for index, item in items:
            for at, part in enumerate(_parts(item, "message")):
                found = self._fix(part, (index, at)) or found
        return found

    def _closing(self, data: dict[str, Any], kind: str) -> list[bytes]:
        """End the open text, its item and the response, as the server does at a limit of tokens."""
        key, number = self._key(data), _number(data.get("sequence_number"))
        text = "".join(self._said)
        if edges := self._edges.get(key):
            text = edges.kept(text, 0, len(text)) if edges.total == len(text) else text
        part: dict[str, Any] = {"type": kind, "text": text}
        if kind == "output_text":
            part |= {"annotations": [], "logprobs": None}
        place = {name: data[name] for name in ("content_index", "item_id", "output_index") if name in data}
        item = self._open.get(key[0])
        told = [
            (f"response.{kind}.done", place | {"text": text}),
            ("response.content_part.done", place | {"part": part}),
        ]
        if isinstance(item, dict):
            item = item | {"content": [part], "status": "incomplete"}
            self._items[key[0]] = item
            told.append(("response.output_item.done", {"item": item, "output_index": key[0]}))
        whole = {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}
        whole["output"] = [self._items[index] for index in sorted(self._items)]
        told.append(("response.incomplete", {"response": self._response | whole}))
        events = []
        for at, (name, body) in enumerate(told, number + 1):
            line = compact(body | {"sequence_number": at, "type": name})
            events.append(b"event: " + name.encode() + b"\ndata: " + line + b"\n\n")
        return events


def clean_response(data: dict[str, Any], options: Options, asked: Asked) -> bool:
    """Take the stray tags out of a whole answer; whether there were any."""
    changed = reasoned = False
    for item in _list(data.get("output")):
        reasoned = reasoned or any(str(part.get("text") or "").strip() for part in _parts(item, "reasoning"))
        for part in _parts(item, "message"):
            text = part.get("text")
            if isinstance(text, str) and text:
                part["text"] = clean(text, End.CUT, options.tags, reasoned=reasoned, start=asked.start)
                changed = changed or part["text"] != text
    return changed


def _number(value: Any) -> int:
    return value if isinstance(value, int) else 0


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _parts(item: Any, kind: str) -> list[dict[str, Any]]:
    if not isinstance(item, dict) or item.get("type") != kind or not isinstance(item.get("content"), list):
        return []
    return [part for part in item["content"] if isinstance(part, dict)]
