"""The public cases over HTTP, on releases whose formats the own parser serves: one server for each pair of parsers.

    python -m tests.serving.public_cases vllm-0.21.0 [vllm-0.23.0 ...] [--out FILE]

Prints the cases that are wrong, streaming or full, with the overlay on; exit status 1 when there are any.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import httpx

from engine_overlay.verify import cases as public
from engine_overlay.verify import releases
from engine_overlay.verify.cases import Answer, Case
from tests.live.case_model import Pieces
from tests.matrix import environment
from tests.serving import one, requests
from tests.text.own import covers

_NEVER = "\x01"
"""No case says it; a stop string of it holds text back as long as the case wants."""


def pairs() -> dict[tuple[str | None, str | None], list[Case]]:
    """The pairs of parsers that the own parser serves, with their cases."""
    found: dict[tuple[str | None, str | None], list[Case]] = {}
    for case in public.load():
        if covers(case):
            found.setdefault((case["reasoning_parser"], case["tool_parser"]), []).append(case)
    return found


def has(release: releases.Release, pair: tuple[str | None, str | None]) -> bool:
    """Whether a release has both parsers under their stock names."""
    for name, package in zip(pair, ("reasoning", "tool_parsers"), strict=True):
        listed = release.sources / release.engine / package / "__init__.py"
        if name is not None and f'"{name}"' not in listed.read_text(encoding="utf-8"):
            return False
    return True


class Server(one.Server):
    """A server for one pair of parsers; either may be missing."""

    MODULE = "tests.serving.case_server"

    def model(self) -> Path:
        folder = releases.cache() / "case-model"
        code = "import sys, pathlib; from tests.live.case_model import make; make(pathlib.Path(sys.argv[1]))"
        variables = environment.variables(None, overlay=False)
        environment.call(["-c", code, str(folder)], variables).check_returncode()
        return folder


def ask(label: str) -> dict[str, dict[str, dict[str, Any]]]:
    """Case id -> {"stream": wrong fields, "full": wrong fields}, of the parsers it has. Raises ServerFailed."""
    release = releases.named(label)
    releases.fetch(release)
    pieces = Pieces(public.load())
    seen = {}
    for pair, cases in pairs().items():
        if not has(release, pair):
            continue
        with tempfile.TemporaryDirectory(prefix="engine-overlay-cases-") as folder:
            with Server(release, Path(folder), overlay=True, parsers=pair) as server:
                url = f"http://127.0.0.1:{server.port}"
                with httpx.Client(base_url=url, timeout=60, trust_env=False) as client:
                    for case in cases:
                        ways = {"stream": True, "full": False}
                        seen[case["id"]] = {w: _wrong(client, release, case, pieces, s) for w, s in ways.items()}
    return seen


def _wrong(client: httpx.Client, release: releases.Release, case: Case, pieces: Pieces, stream: bool) -> dict[str, Any]:
    ids = pieces.ids(case)
    cut = case.get("engine_finish") == "length"
    prompt = b"".join(map(public.piece_bytes, case["prompt_pieces"])).decode()
    body = public.request_fields(case) | {
        "model": requests.MODEL,
        "messages": [{"role": "user", "content": prompt}],
        "stream": stream,
        "max_tokens": len(ids) + (0 if cut else 8),
        f"{release.engine}_xargs": {"script": json.dumps([[i] for i in ids])},
    }
    if held := case.get("holdback", 0):
        # The engine holds back one character less than its longest stop string has.
        body["stop"] = [_NEVER * (held + 1)]
    if kwargs := case.get("chat_template_kwargs"):
        body["chat_template_kwargs"] = kwargs
    response = client.post("/v1/chat/completions", json=body)
    if response.status_code != 200:
        return {"refused": f"{response.status_code}: {response.text[:300]}"}
    return public.wrong(case, _streamed(response.text) if stream else _whole(response.json()))


def _streamed(text: str) -> Answer:
    answer = Answer()
    for line in text.splitlines():
        data = line.removeprefix("data: ")
        if not line.startswith("data: ") or data == "[DONE]":
            continue
        for choice in json.loads(data).get("choices", ()):
            delta = choice["delta"]
            answer.add(delta.get("reasoning") or delta.get("reasoning_content"), delta.get("content"))
            for call in delta.get("tool_calls") or ():
                function = call.get("function") or {}
                answer.add_call(call["index"], function.get("name"), function.get("arguments"))
            answer.finish_reason = choice.get("finish_reason") or answer.finish_reason
    return answer


def _whole(body: dict[str, Any]) -> Answer:
    (choice,) = body["choices"]
    message = choice["message"]
    answer = Answer(finish_reason=choice["finish_reason"])
    answer.add(message.get("reasoning") or message.get("reasoning_content"), message.get("content"))
    for index, call in enumerate(message.get("tool_calls") or ()):
        answer.add_call(index, call["function"]["name"], call["function"]["arguments"])
    return answer


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("labels", nargs="+")
    parser.add_argument("--out", type=Path, help="write what was seen here as JSON")
    options = parser.parse_args()
    found, bad = {}, 0
    for label in options.labels:
        seen = found[label] = ask(label)
        wrong = {case: {w: d for w, d in ways.items() if d} for case, ways in seen.items() if any(ways.values())}
        bad += len(wrong)
        print(f"{label}: {len(seen) - len(wrong)} of {len(seen)} cases right over HTTP, streaming and full", flush=True)
        for case, ways in wrong.items():
            print(f"  {case}: {json.dumps(ways, ensure_ascii=False)[:400]}", flush=True)
    if options.out:
        options.out.write_text(json.dumps(found, ensure_ascii=False, indent=1), encoding="utf-8")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
