"""``engine-overlay canary URL``: ask a server as its users do, and tell what is wrong with its answers."""

from __future__ import annotations

import argparse
import importlib.util
from pathlib import Path

from engine_overlay.cli.main import fail


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("url", help="the address that users have, such as http://127.0.0.1:8000")
    parser.add_argument("--model", default="")
    parser.add_argument("--api-key", default="")
    parser.add_argument("--requests", type=int, default=3)
    parser.add_argument("--parallel", default="1,8,16,32")
    parser.add_argument("--max-tokens", type=int, default=2048)
    parser.add_argument("--timeout", type=float, default=300.0)
    parser.add_argument("--temperature", type=float, default=None)
    parser.add_argument("--prompts", type=Path)
    parser.add_argument("--only", default="")
    parser.add_argument("--skip", default="")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--json", action="store_true")


def main(args: argparse.Namespace) -> int:
    if importlib.util.find_spec("httpx") is None:
        return fail("canary", "httpx is not installed", "run \"pip install 'engine-overlay[canary]'\"")
    from engine_overlay.canary.asking import CannotAsk
    from engine_overlay.canary.command import Wanted
    from engine_overlay.canary.command import main as ask

    try:
        return ask(
            Wanted(
                url=args.url, model=args.model, key=args.api_key, requests=args.requests, parallel=args.parallel,
                max_tokens=args.max_tokens, timeout=args.timeout, temperature=args.temperature, prompts=args.prompts,
                only=args.only, skip=args.skip, out=args.out, as_json=args.json,
            )
        )  # fmt: skip
    except CannotAsk as error:
        return fail("canary", *error.args)
