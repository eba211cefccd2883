"""Sends every request to a server and writes down what came: ``python -m tests.serving.client ENGINE PORT
FILE``.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import httpx

from tests.serving.requests import all_requests


def main() -> None:
    engine, port, out = sys.argv[1:]
    answers = {}
    with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60, trust_env=False) as client:
        for request in all_requests():
            response = client.post(request.path, json=request.body(engine))
            answers[request.name] = (response.status_code, response.text)
    Path(out).write_text(json.dumps(answers, ensure_ascii=False), encoding="utf-8")


if __name__ == "__main__":
    main()
