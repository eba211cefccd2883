"""How much all requests together may hold back: a bound on memory that no number of clients gets past."""

from __future__ import annotations


class Room:
    """``limit`` bytes for everybody."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0

    def share(self) -> Share:
        return Share(self)


class Share:
    """What one request holds of a :class:`Room`."""

    __slots__ = ("_held", "_room")

    def __init__(self, room: Room) -> None:
        self._room, self._held = room, 0

    def hold(self, size: int) -> bool:
        """Whether there is room for holding ``size`` bytes in place of what is held now; if not, nothing changes."""
        more = size - self._held
        if more > 0 and self._room.used + more > self._room.limit:
            return False
        self._room.used += more
        self._held = size
        return True

    def release(self) -> None:
        self.hold(0)
