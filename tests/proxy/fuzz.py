"""Random streams and answers through the filter: no exception, no lost byte, no slow step, memory given back.

    python -m tests.proxy.fuzz [--seconds 3600] [--seed N]
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
import zlib

from engine_overlay.proxy import decoding, target
from engine_overlay.proxy.request import CHAT, COMPLETIONS, RESPONSES, Asked
from tests.proxy.streams import DONE, chat, cut_bytes, responses, stream

KINDS = (CHAT, COMPLETIONS, RESPONSES)
WORDS = ("</think>", "<think>", "hink>", "<tool_call>", "call>", "Hi", "\n\n", " ", "`", "é", '"', "<", "")
JUNK = (b"data: ", b"\n", b"\r", b"\r\n", b"\n\n", b": x\n\n", b"{", b"[" * 3000, b"null", b"\xff", b"event: a\n", DONE)
STEP_SECONDS = 2.0


def wire(dice: random.Random) -> bytes:
    """A stream that was right, and was then broken in a few places."""
    pieces = [dice.choice(WORDS) for _ in range(dice.randrange(12))]
    data = bytearray(b"".join(chat(pieces) if dice.random() < 0.6 else responses(pieces or ["x"], "hm")))
    for _ in range(dice.randrange(6)):
        at = dice.randrange(len(data) + 1)
        what = dice.random()
        if what < 0.4:
            data[at:at] = dice.choice(JUNK)
        elif what < 0.6:
            del data[at : at + dice.randrange(40)]
        elif what < 0.8:
            data[at : at + 1] = bytes([dice.randrange(256)])
        else:
            number = dice.choice((b"-1", b"true", b"[]", b"{}", b"1e999", b"null", b'"x"', b"9" * 400))
            data = bytearray(bytes(data).replace(b":0", b":" + number, dice.randrange(3)))
    return bytes(data)


def one(seed: int) -> None:
    """One round. Raises AssertionError, or whatever the filter raises."""
    dice = random.Random(seed)
    data, kind = wire(dice), dice.choice(KINDS)
    places = [dice.randrange(10_000) for _ in range(dice.randrange(30))]
    start = time.process_time()
    filtered = stream(kind, Asked(choices=dice.randrange(1, 4)), max_event=dice.choice((100, 8_000_000)), max_choices=2)
    out = b""
    for chunk in cut_bytes(data, places):
        out += filtered.feed(chunk)
        if filtered.stopped:
            break
    else:
        out += filtered.close() if dice.random() < 0.7 else filtered.broke_off(b"")
    assert filtered.stopped or filtered.held == 0
    assert time.process_time() - start < STEP_SECONDS
    # Nothing is made up: without a tag in it, and without an end of ours, a stream is what it was, or its beginning.
    if b"hin" not in data and b"call" not in data and not filtered.stopped:
        assert data.startswith(out)
    _decoding(dice, data)
    _path(dice)


def _decoding(dice: random.Random, data: bytes) -> None:
    packed = bytearray(zlib.compress(data))
    whole = dice.random() < 0.5
    if not whole:
        packed[dice.randrange(len(packed))] ^= 1 << dice.randrange(8)
    decoder = decoding.Decoder(b"deflate")
    try:
        got = b"".join(p for chunk in cut_bytes(bytes(packed), [dice.randrange(999)]) for p in decoder.feed(chunk))
        got += decoder.end()
    except decoding.Broken:
        assert not whole
    else:
        assert got == data or not whole


def _path(dice: random.Random) -> None:
    parts = (b".", b"..", b"/", b"%2e", b"%2F", b"%25", b";", b"\\", b"a")
    path = b"/" + b"".join(dice.choice(parts) for _ in range(9))
    clean = target.clean(path)
    if clean is not None:
        assert target.clean(clean) == clean and not {b".", b".."} & set(clean.split(b"/"))


def search(seconds: float, first: int) -> int:
    """How many rounds went well in this time."""
    end, number = time.monotonic() + seconds, first
    while time.monotonic() < end:
        try:
            one(number)
        except BaseException:
            print(json.dumps({"seed": number}), file=sys.stderr)
            raise
        number += 1
    return number - first


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.proxy.fuzz")
    parser.add_argument("--seconds", type=float, default=3600.0)
    parser.add_argument("--seed", type=int, default=1_000_000)
    options = parser.parse_args()
    print(f"{search(options.seconds, options.seed)} rounds")


if __name__ == "__main__":
    main()
