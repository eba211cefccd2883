"""Keeps a thinking budget that is counted on the device from forcing an end where reasoning is over.

The device knows the tokens before the host does. Only when a budget may be used up are a request's tokens copied to
the host: once at its first step, for the prompt, and then in the steps at its budget, of which there are a few.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from engine_overlay.text.budget import Watch
from engine_overlay.text.reading import Reading


class Request:
    """What is known of one request: its watch, and from which length on its budget may be used up."""

    __slots__ = ("due", "length", "prompt", "steps", "watch")

    def __init__(self, watch: Watch, prompt: int, due: int, length: int) -> None:
        self.watch, self.prompt, self.due, self.length, self.steps = watch, prompt, due, length, 0


class Rows:
    """The requests of one worker by their slot. ``drafts``: most drafts a step."""

    def __init__(self, reading: Reading, start: Sequence[int], end: Sequence[int], drafts: int) -> None:
        self._reading, self._start, self._end, self._drafts = reading, list(start), list(end), drafts
        self._known: dict[int, Request] = {}

    def forget(self, slot: int) -> None:
        """A new request comes to this slot."""
        self._known.pop(slot, None)

    def left_alone(
        self, state: Any, slots: Sequence[int], owners: Any, inputs: Any, positions: Any
    ) -> tuple[list[int], list[int]]:
        """(rows of this step in which nothing may be forced, slots whose reasoning is over).

        ``state`` is the engine's; ``slots`` are those with a budget. ``owners``, ``inputs`` and ``positions`` are
        tensors with the slot, the input id and the place among its request's rows of each row.
        """
        asked = [slot for slot in slots if self._may_be_due(slot)]
        if not asked:
            return [], []
        requests = state.req_states
        lengths = dict(zip(asked, requests.total_len.gpu[asked].tolist(), strict=True))
        due = [slot for slot in asked if self._is_due(slot, lengths[slot], state)]
        if not due:
            return [], []
        owner, given, place = owners.tolist(), inputs.tolist(), positions.tolist()
        rows: list[int] = []
        over: list[int] = []
        for slot in due:
            request = self._known[slot]
            output = requests.all_token_ids.gpu[slot, request.prompt : lengths[slot]].tolist()
            mine = [row for row, whose in enumerate(owner) if whose == slot]
            if request.watch.ended(output):
                over.append(slot)
                rows += mine
                continue
            for row in mine:
                # The first row's input is the last token that counts already; drafts follow it.
                drafts = given[row - place[row] + 1 : row + 1]
                if not self._forcing([*output, *drafts]) and request.watch.waits(output, drafts):
                    rows.append(row)
        return rows, over

    def _may_be_due(self, slot: int) -> bool:
        request = self._known.get(slot)
        if request is None:
            return True
        request.steps += 1
        return request.length + request.steps * (1 + self._drafts) + self._drafts >= request.due

    def _is_due(self, slot: int, length: int, state: Any) -> bool:
        request = self._known.get(slot)
        if request is None:
            request = self._known[slot] = self._new(slot, length, state)
        request.length, request.steps = length, 0
        return length + self._drafts >= request.due

    def _new(self, slot: int, length: int, state: Any) -> Request:
        requests, start = state.req_states, self._start
        prompt = int(requests.prompt_len.np[slot])
        ids = requests.all_token_ids.gpu[slot, :prompt].tolist()
        began, ended = last_place(ids, start), last_place(ids, self._end)
        thinking = began > ended
        first = began + len(start) if thinking else prompt + len(start)
        budget = int(state.thinking_token_budget.np[slot])
        return Request(Watch(self._reading, start, thinking, ids), prompt, first + budget, length)

    def _forcing(self, ids: list[int]) -> bool:
        """Whether the engine is in the middle of an end of several ids."""
        return any(ids[-size:] == self._end[:size] for size in range(1, len(self._end)))


def last_place(ids: Sequence[int], wanted: Sequence[int]) -> int:
    """Where ``wanted`` last begins in ``ids``, or -1."""
    size = len(wanted)
    return next((at for at in range(len(ids) - size, -1, -1) if list(ids[at : at + size]) == list(wanted)), -1)
