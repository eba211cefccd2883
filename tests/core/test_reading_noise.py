"""Noise in the files and the answers that ``engine-overlay status`` reads; STATUS_FUZZ_SECONDS says for how long."""

from __future__ import annotations

import json
import os
import random
import resource
import socket
import time

from engine_overlay import live
from engine_overlay.cli import status as command
from tests.core.hostile import listening, me, put, report

FUZZ_S = float(os.environ.get("STATUS_FUZZ_SECONDS", "2"))


def noise(random_: random.Random) -> bytes:
    """A report with something broken in it, or no report at all."""
    sound = json.dumps(report(values={"vllm": {"a": 1}}, problems=["p"]))
    kind = random_.randrange(6)
    if kind == 0:
        return random_.randbytes(random_.randrange(200))
    if kind == 1:
        return sound[: random_.randrange(len(sound))].encode()
    if kind == 2:
        data = bytearray(sound.encode())
        for _ in range(random_.randrange(1, 8)):
            data[random_.randrange(len(data))] = random_.randrange(256)
        return bytes(data)
    odd = random_.choice([None, [], {}, "", -1, 10**19, 1e308, True, [[[]]], {"a": [1]}, "\ud800\x1b[2J"])
    data = report()
    place = random_.choice([data, data["patches"][0], data["engine"]])
    place[random_.choice(list(place))] = odd
    if kind == 5:
        data[random_.choice(["values", "problems", "profile", "argv"])] = random_.choice([odd, [odd], {"a": odd}])
    return json.dumps(data).encode()


def test_nothing_that_is_written_or_answered_ends_it(tmp_path, monkeypatch, capsys):
    """The command prints what it can, with no traceback, in flat memory."""
    monkeypatch.setattr(live, "TIMEOUT_S", 0.2)
    random_, answers = random.Random(13), [b""]

    def serve(client: socket.socket) -> None:
        if random_.random() < 0.02:
            time.sleep(1)
        client.sendall(answers[0])

    rounds, peak, end_ = 0, None, time.monotonic() + FUZZ_S
    with listening(tmp_path / f"{me()}.sock", serve):
        while time.monotonic() < end_:
            answers[0] = noise(random_)
            put(tmp_path, me(), noise(random_))
            begin = time.process_time()
            code = command.command(state_dir=tmp_path, every=random_.random() < 0.5, json=random_.random() < 0.3)
            assert code in (0, 1) and time.process_time() - begin < 2
            rounds += 1
            if rounds == 20:
                peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            capsys.readouterr()
    assert rounds > 20 and peak is not None
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - peak < 50_000
