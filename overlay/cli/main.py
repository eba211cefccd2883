"""``engine-overlay``: the command line. Each command is a module of this package with ``add`` and ``main``."""

from __future__ import annotations

import argparse
import importlib
import sys

import engine_overlay
from engine_overlay.settings import suggest

COMMANDS = {
    "status": "what is active in each running process of this user",
    "list": "every known patch: area, tested releases, title",
    "plan": "what the gate says of each patch for the installed engine, without importing it",
    "explain": "one patch: symptom, cause, change, risk, and its verdict here",
    "diff": "each function that a patch replaces, as installed and as it is with the patch in",
    "doctor": "prove each patch here: the fault without it, and its absence with it",
    "verify": "recorded answers of models through the installed engine, without and with the overlay",
    "drift": "what another release of an engine changed of what the patches touch",
    "fingerprint": "the body hash of a function of the installed engine, for a patch record",
    "proxy": "take stray tags out of the answers of a server that cannot be patched",
    "canary": "ask a running server as its users do: leaking tags, loops, arguments of wrong types",
    "parity": "how far the engine's log-probabilities are from a trainer's, why, and what to change",
    "new": "the beginning of a patch of your own and its test",
    "run": "start a command with the overlay where no start-up file can be installed",
}


def main(argv: list[str] | None = None) -> int:
    """Run one command; returns the exit code: 0 fine, 1 something is wrong, 2 the call was not understood."""
    argv = list(sys.argv[1:] if argv is None else argv)
    if argv and not argv[0].startswith("-") and argv[0] not in COMMANDS:
        print(
            f'engine-overlay: {argv[0]}: no such command{suggest(argv[0], COMMANDS)}; run "engine-overlay --help"',
            file=sys.stderr,
        )
        return 2
    if argv and argv[0] == "run":
        from engine_overlay.cli.run import run

        return run(argv[1:])
    parser = argparse.ArgumentParser(prog="engine-overlay", description=engine_overlay.__doc__.splitlines()[0])
    parser.add_argument("--version", action="version", version=f"engine-overlay {engine_overlay.__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name, summary in COMMANDS.items():
        # Only the command that was asked for is loaded.
        sub = commands.add_parser(name, help=summary, description=summary)
        if argv[:1] == [name]:
            module = importlib.import_module(f"engine_overlay.cli.{name}")
            module.add(sub)
            sub.set_defaults(main=module.main)
    args = parser.parse_args(argv)
    try:
        return args.main(args)
    except BrokenPipeError:
        return 1


def table(rows: list[list[str]], head: list[str]) -> str:
    """A plain text table; cells are cut to one line."""
    cells = [head, *rows]
    widths = [max(len(row[i]) for row in cells) for i in range(len(head))]
    lines = ["  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)).rstrip() for row in cells]
    return "\n".join([lines[0], "  ".join("-" * w for w in widths), *lines[1:]])


def fail(subject: str, reason: str, step: str) -> int:
    """Print one error line and give the exit code for a call that cannot be answered."""
    print(f"engine-overlay: {subject}: {reason}; {step}", file=sys.stderr)
    return 2
