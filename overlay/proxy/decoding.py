"""Answers that come compressed, although none was asked for: gzip and deflate, in small pieces.

What the standard library cannot decode (br, zstd) is passed on as it is.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator

PIECE = 64 * 1024
"""Bytes that one step gives at most, however much a compressed piece becomes."""

GZIP = (b"gzip", b"x-gzip")
KNOWN = (*GZIP, b"deflate")
_MEMBER = b"\x1f\x8b"


class Broken(Exception):
    """The data is not what its header says, or ends too early."""


class Decoder:
    """One answer with an encoding of :data:`KNOWN`."""

    def __init__(self, encoding: bytes) -> None:
        self._bits = zlib.MAX_WBITS | (16 if encoding in GZIP else 0)
        self._one = zlib.decompressobj(self._bits)
        self._begun = False

    def feed(self, data: bytes) -> Iterator[bytes]:
        """The pieces of what ``data`` holds. Raises Broken."""
        full = False
        while data or full:
            if self._one.eof:
                # Another member may follow, as gzip allows; anything else there is padding.
                if data[:2] != _MEMBER:
                    return
                self._one = zlib.decompressobj(self._bits)
            try:
                piece = self._one.decompress(data, PIECE)
            except zlib.error as error:
                if self._begun or self._bits != zlib.MAX_WBITS:
                    raise Broken(str(error)) from error
                # Some servers send deflate without its header.
                self._bits = -zlib.MAX_WBITS
                self._one = zlib.decompressobj(self._bits)
                continue
            self._begun = True
            if piece:
                yield piece
            # A full piece may leave more inside, though all that came was taken.
            full = len(piece) == PIECE and not self._one.eof
            data = self._one.unused_data if self._one.eof else self._one.unconsumed_tail

    def end(self) -> bytes:
        """The last bytes. Raises Broken when more should have come."""
        rest = self._one.flush()
        if self._begun and not self._one.eof:
            raise Broken("it ends too early")
        return rest
