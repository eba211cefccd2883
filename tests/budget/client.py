"""Sends every request to a server and writes down what came:
``python -m tests.budget.client LABEL PORT FILE [PART OF A NAME]``.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import httpx

from engine_overlay.verify import releases
from tests.budget.requests import all_requests


def main(label: str, port: str, out: str, part: str = "") -> None:
    release = releases.named(label)
    answers = {}
    with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60, trust_env=False) as client:
        for request in all_requests(release):
            if part in request.name:
                response = client.post("/v1/chat/completions", json=request.body(release.engine))
                answers[request.name] = (response.status_code, response.text)
    Path(out).write_text(json.dumps(answers, ensure_ascii=False), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
