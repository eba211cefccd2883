"""What the proxy costs: time to the first token, 200 streams at once, and CPU per event.

    python -m bench.proxy [--streams 200] [--events 100] [--rate 10] [--before CHECKOUT] [--json]

Everything is real and on this machine: a uvicorn server that streams recorded events, ``engine-overlay proxy`` before
it, and a client that reads bytes. Each measurement is made directly and through the proxy, in turns, and the first
token also through a process that only copies bytes: what any process between costs here, above all waiting for a
core on a busy machine. Every stream's hash is compared with that of what was sent.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import contextlib
import hashlib
import http.client
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.proxy import processes
from tests.proxy.streams import chat, stream

PATH = "/v1/chat/completions"
TOKENS = "The weather in Paris is nice today , and I think that all of this is `a < b` . Call me :\n\n".split(" ")


def wire(events: int, number: int = 0) -> list[bytes]:
    """A healthy stream of about ``events`` events; each number's is another."""
    words = [f" {TOKENS[(n + number) % len(TOKENS)]}" for n in range(events)]
    return chat([{"reasoning": f"stream {number}"}, "\n\n", *words])


def request(chunks: list[bytes], pause: float = 0.0) -> bytes:
    encoded = [base64.b64encode(chunk).decode() for chunk in chunks]
    return json.dumps({"stream": True, "reply": {"chunks": encoded, "base64": True, "pause": pause}}).encode()


def first_token(ports: dict[str, int], rounds: int) -> dict[str, list[float]]:
    """Milliseconds from a request to its first event, on a connection that is kept; 5 ms from event to event."""
    body = request(wire(1), 0.005)
    times: dict[str, list[float]] = {name: [] for name in ports}
    connections = {name: http.client.HTTPConnection("127.0.0.1", port) for name, port in ports.items()}
    for number in range(rounds + 20):
        for name, connection in connections.items():
            start = time.perf_counter()
            connection.request("POST", PATH, body, {"Content-Type": "application/json"})
            response = connection.getresponse()
            response.read1(1)
            if number >= 20:
                times[name].append((time.perf_counter() - start) * 1e3)
            response.read()
            # A model is never asked again at once; and what an answer left to do must not count for the next one.
            time.sleep(0.004)
    return times


async def one_stream(port: int, number: int, events: int, pause: float) -> tuple[bool, float]:
    """Whether the body came as it was sent, and the seconds it took."""
    chunks = wire(events, number)
    body = request(chunks, pause)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    head = f"POST {PATH} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {len(body)}\r\n\r\n"
    start = time.perf_counter()
    writer.write(head.encode() + body)
    got = hashlib.sha256()
    status = await reader.readline()
    while (await reader.readline()).strip():
        pass
    while size := int(await reader.readline(), 16):
        got.update(await reader.readexactly(size))
        await reader.readline()
    writer.close()
    same = got.digest() == hashlib.sha256(b"".join(chunks)).digest()
    return same and b" 200 " in status, time.perf_counter() - start


async def many_streams(port: int, streams: int, events: int, pause: float) -> dict[str, Any]:
    start = time.perf_counter()
    work = (one_stream(port, number, events, pause) for number in range(streams))
    done = await asyncio.gather(*work, return_exceptions=True)
    seconds = time.perf_counter() - start
    errors = [str(found) for found in done if isinstance(found, BaseException)]
    times = [found[1] for found in done if not isinstance(found, BaseException)]
    return {
        "seconds": round(seconds, 2),
        "slowest_stream": round(max(times, default=0.0), 2),
        "events_per_second": round(streams * (events + 5) / seconds),
        "errors": len(errors),
        "other_bytes": sum(1 for found in done if not isinstance(found, BaseException) and not found[0]),
    }


RELAY = """
import asyncio, sys
try:
    import uvloop as loops
except ImportError:
    loops = asyncio

async def copy(reader, writer):
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()
    writer.close()

async def serve(reader, writer):
    there_reader, there_writer = await asyncio.open_connection("127.0.0.1", int(sys.argv[1]))
    await asyncio.gather(copy(reader, there_writer), copy(there_reader, writer))

async def main():
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()

loops.run(main())
"""


@contextlib.contextmanager
def relay(port: int) -> Iterator[int]:
    """A process that copies bytes to and from ``port``; its own port."""
    command = [sys.executable, "-c", RELAY, str(port)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        try:
            yield int(process.stdout.readline())
        finally:
            process.terminate()


def per_event(events: int = 20_000) -> float:
    """Microseconds of CPU that the filter itself takes for one event."""
    chunks = wire(events)
    one = stream()
    start = time.process_time()
    for chunk in chunks:
        one.feed(chunk)
    return (time.process_time() - start) / len(chunks) * 1e6


def measure(streams: int, events: int, rate: float, rounds: int, checkout: Path | None = None) -> dict[str, Any]:
    result: dict[str, Any] = {"streams": streams, "events_per_stream": events, "events_per_second_and_stream": rate}
    with contextlib.ExitStack() as running:
        server = running.enter_context(processes.upstream())
        proxies = {"proxy": running.enter_context(processes.proxy(server.url))}
        if checkout is not None:
            proxies["before"] = running.enter_context(processes.proxy(server.url, checkout=checkout))
        ports = {"direct": server.port, **{name: one.port for name, one in proxies.items()}}
        with relay(server.port) as copying:
            times = first_token({**ports, "relay": copying}, rounds)
        quick = {name: statistics.median(found) for name, found in times.items()}
        result["first_token_ms"] = {
            **{name: round(found, 3) for name, found in quick.items()},
            "relay_added_median": round(quick["relay"] - quick["direct"], 3),
            "relay_added_least": round(min(times["relay"]) - min(times["direct"]), 3),
            "added_least": round(min(times["proxy"]) - min(times["direct"]), 3),
            "added_median": round(quick["proxy"] - quick["direct"], 3),
            **({"before_added_median": round(quick["before"] - quick["direct"], 3)} if checkout else {}),
        }
        for name, port in ports.items():
            own = proxies.get(name)
            spent = own.cpu() if own else 0.0
            result[name] = asyncio.run(many_streams(port, streams, events, 1 / rate))
            if own:
                spent = own.cpu() - spent
                result[name]["cpu_us_per_event"] = round(spent / (streams * (events + 5)) * 1e6)
                result[name]["memory_mb"] = round(own.memory() / 1e6)
    result["ideal_seconds"] = round((events + 4) / rate, 2)
    result["filter_us_per_event"] = round(min(per_event() for _ in range(3)), 1)
    return result


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.proxy", description=__doc__.partition("\n")[0])
    parser.add_argument("--streams", type=int, default=200)
    parser.add_argument("--events", type=int, default=100, help="of each stream")
    parser.add_argument("--rate", type=float, default=10.0, help="events per second of each stream")
    parser.add_argument("--rounds", type=int, default=300, help="requests for the time to the first token")
    parser.add_argument("--before", type=Path, help="a checkout of this repository whose proxy is measured beside")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    found = measure(options.streams, options.events, options.rate, options.rounds, options.before)
    if options.json:
        print(json.dumps(found, indent=1))
        return 0
    first = found["first_token_ms"]
    print(f"first token: direct {first['direct']} ms, relay {first['relay']} ms, proxy {first['proxy']} ms (medians)")
    print(f"  added by the proxy: {first['added_median']} ms (median), {first['added_least']} ms (fastest)")
    print(f"  added by a relay:   {first['relay_added_median']} ms (median), {first['relay_added_least']} ms (fastest)")
    best = found["ideal_seconds"]
    print(f"load of this machine: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    print(f"{options.streams} streams of {options.events} events, {options.rate:g}/s each; {best} s at best")
    if options.before:
        print(f"  added before:       {first['before_added_median']} ms (median)")
    for name in ("direct", "proxy", *(["before"] if options.before else [])):
        side = found[name]
        print(
            f"  {name:6}  {side['seconds']} s, {side['events_per_second']} events/s, "
            f"{side['errors']} errors, {side['other_bytes']} with other bytes"
        )
    for name in ("proxy", *(["before"] if options.before else [])):
        print(f"{name}: {found[name]['cpu_us_per_event']} us of CPU per event, {found[name]['memory_mb']} MB")
    print(f"of which the filter itself: {found['filter_us_per_event']} us")
    return int(found["proxy"]["errors"] + found["proxy"]["other_bytes"] > 0)


if __name__ == "__main__":
    sys.exit(main())
