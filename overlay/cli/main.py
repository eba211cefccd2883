"""``engine-overlay``: the command line.

A command is a module of this package. It has a function ``command``, whose parameters are annotated as typer wants
them, whose docstring is the help and which returns the exit code; ``EXAMPLES``, calls that work; and ``EXITS``, what
its exit codes mean. ``MANY`` may name options that take several values. Only the module that is asked for is loaded.
"""

from __future__ import annotations

import enum
import importlib
import inspect
import os
import re
import sys
import types
import typing
from collections.abc import Callable, Sequence
from typing import Annotated, Any

import engine_overlay
from engine_overlay.cli.tables import clean, fancy
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
    "parity": "how far the engine's log-probabilities are from a trainer's, why, and what to change",
    "new": "the beginning of a patch of your own and its test",
    "run": "start a command with the overlay where no start-up file can be installed",
}

NOT_UNDERSTOOD = 2
INTERRUPTED = 130


def main(argv: list[str] | None = None) -> int:
    """Run one command; returns the exit code: 0 fine, 1 something is wrong, 2 the call was not understood."""
    argv = list(sys.argv[1:] if argv is None else argv)
    if argv[:1] == ["help"]:
        argv = [*argv[1:2], "--help"]
    if argv[:1] == ["run"]:
        # The launcher works where nothing is installed beside it.
        from engine_overlay.cli.run import run

        return run(argv[1:])
    if argv[:1] == ["--version"]:
        print(f"engine-overlay {engine_overlay.__version__}")
        return 0
    if argv and not argv[0].startswith("-") and argv[0] not in COMMANDS:
        return fail(argv[0], f"no such command{suggest(argv[0], COMMANDS)}", 'run "engine-overlay --help"')
    try:
        import typer
    except ImportError as error:
        missing = error.name or "typer"
        return fail(missing, "it is not installed, and the commands need it", 'run "pip install typer rich"')
    if hasattr(sys.stdout, "reconfigure"):
        # A terminal or a log that cannot show a character is no reason to end.
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        code = _group(typer).main(argv or ["--help"], prog_name="engine-overlay", standalone_mode=False)
        if sys.stdout is not None:
            sys.stdout.flush()
    except BrokenPipeError:
        _hush()
        return 1
    except (typer.Abort, KeyboardInterrupt):
        return INTERRUPTED
    except Exception as error:
        # Newer releases of typer bring a click of their own: the base class is reached through what both export.
        if not isinstance(error, typer.BadParameter.__mro__[2]):
            raise
        return _misused(error, argv)
    if not argv:
        return NOT_UNDERSTOOD
    return code if isinstance(code, int) else 0


def fail(subject: str, reason: str, step: str) -> int:
    """Print one error line and give the exit code for a call that cannot be answered."""
    print(f"engine-overlay: {clean(subject)}: {clean(reason)}; {clean(step)}", file=sys.stderr)
    return NOT_UNDERSTOOD


def _hush() -> None:
    """Whoever read our output has left: what is still in the buffer must not raise again at exit."""
    void = os.open(os.devnull, os.O_WRONLY)
    os.dup2(void, sys.stdout.fileno())


def _group(typer: Any) -> Any:
    """The command ``engine-overlay`` for typer, which knows of its commands no more than their summaries."""
    from typer.core import TyperCommand, TyperGroup

    def plain(self: Any, ctx: Any, formatter: Any) -> None:
        self.format_usage(ctx, formatter)
        self.format_help_text(ctx, formatter)
        self.format_options(ctx, formatter)
        self.format_epilog(ctx, formatter)

    class Command(TyperCommand):
        def format_help(self, ctx: Any, formatter: Any) -> None:
            super().format_help(ctx, formatter) if fancy() else plain(self, ctx, formatter)

    class Group(TyperGroup):
        def format_help(self, ctx: Any, formatter: Any) -> None:
            super().format_help(ctx, formatter) if fancy() else plain(self, ctx, formatter)

        def list_commands(self, ctx: Any) -> list[str]:
            return list(COMMANDS)

        def get_command(self, ctx: Any, name: str) -> Any:
            return Command(name=name, help=COMMANDS[name], params=[]) if name in COMMANDS else None

        def format_commands(self, ctx: Any, formatter: Any) -> None:
            with formatter.section("Commands"):
                formatter.write_dl(list(COMMANDS.items()))

        def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str, Any, list[str]]:
            name, *rest = args
            if name not in COMMANDS:
                raise typer.BadParameter(f"no such command {name}{suggest(name, COMMANDS)}", ctx=ctx)
            if name == "run":
                return name, self.get_command(ctx, name), rest
            made, many = _command(typer, Command, name)
            return name, made, _spread(rest, many)

    app = typer.Typer(cls=Group, rich_markup_mode="rich", context_settings=_CONTEXT, subcommand_metavar="COMMAND ...")
    about = engine_overlay.__doc__.splitlines()[0]
    epilog = 'Each command has a help of its own: "engine-overlay plan --help".\n\n' + _exits(
        {0: "all is well", 1: "something is wrong, and was printed", 2: "the call was not understood"}
    )

    @app.callback(help=about, epilog=epilog)
    def options(version: bool = typer.Option(False, "--version", help="Print the version and exit.")) -> None:
        """Answered before typer is loaded; here for the help."""

    return typer.main.get_command(app)


_CONTEXT = {"help_option_names": ["-h", "--help"]}


def _command(typer: Any, cls: Any, name: str) -> tuple[Any, Sequence[str]]:
    """Load the module of a command; returns what typer makes of it, and the options that take several values."""
    module = importlib.import_module(f"engine_overlay.cli.{name}")
    lines = [f"Example: {call}" for call in module.EXAMPLES]
    epilog = "\n\n".join([*lines, _exits(module.EXITS)])
    app = typer.Typer(add_completion=False, rich_markup_mode="rich")
    function: Callable[..., int] = module.command
    function.__annotations__ = {key: _spelled(hint) for key, hint in _hints(function, include_extras=True).items()}
    # A paragraph is a line: each way to show the help wraps it by itself.
    paragraphs = inspect.cleandoc(function.__doc__ or "").split("\n\n")
    about = "\n\n".join(" ".join(part.split()) for part in paragraphs)
    app.command(name, cls=cls, help=about, epilog=epilog, context_settings=_CONTEXT)(function)
    return typer.main.get_command(app), getattr(module, "MANY", ())


def _hints(function: Callable[..., int], **more: bool) -> dict[str, Any]:
    return typing.get_type_hints(function, **more)


def _spelled(hint: Any) -> Any:
    """``X | None`` as ``Optional[X]``, which is all that typer before 0.12.4 knows."""
    base, *about = typing.get_args(hint) or (hint,)
    if not isinstance(base, types.UnionType):
        return hint
    return Annotated[(typing.Union[typing.get_args(base)], *about)]  # noqa: UP007


def _exits(codes: dict[int, str]) -> str:
    return "Exit codes: " + "; ".join(f"{code}: {meaning}" for code, meaning in codes.items()) + "."


def _spread(args: list[str], many: Sequence[str]) -> list[str]:
    """``--sources A B`` as ``--sources A --sources B``: a shell puts several names where one writes ``*``."""
    found: list[str] = []
    open_option, fresh = None, False
    for position, word in enumerate(args):
        if word == "--":
            return [*found, *args[position:]]
        if word.startswith("-"):
            open_option = word if word in many else None
            fresh = True
        elif open_option and not fresh:
            found.append(open_option)
        found.append(word)
        if not word.startswith("-"):
            fresh = False
    return found


def _misused(error: Any, argv: list[str]) -> int:
    """One line for a call that typer does not understand, with the nearest word that it would have."""
    ctx = getattr(error, "ctx", None)
    # Not every error knows where it happened.
    path = ctx.command_path.split() if ctx is not None else ["engine-overlay", *argv[:1]]
    command = ctx.command if ctx is not None else None
    known = [name for param in getattr(command, "params", ()) for name in (*param.opts, *param.secondary_opts)]
    param = getattr(error, "param", None)
    name = _name(param) if param is not None else ""
    reason = error.format_message().rstrip(".")
    reason = reason[:1].lower() + reason[1:]
    if extra := re.match(r"got unexpected extra arguments?(?:\(s\))? \((.*)\)", reason):
        reason = f"unknown argument {extra[1].split()[0]}"
    elif type(error).__name__ == "NoSuchOption":
        options = [*(word for word in known if word.startswith("--")), "--help"]
        reason = f"no such option {error.option_name}{suggest(error.option_name, options)}"
    elif type(error).__name__ == "MissingParameter":
        reason = f"{name} is missing"
    elif param is not None:
        kinds, value = _kinds(path[-1], param.name), _given(argv, param)
        choices = [str(one.value) for kind in kinds if issubclass(kind, enum.Enum) for one in kind]
        reason = f"{name}: {error.message.rstrip('.')}"
        if value and choices:
            reason = f"{name} is {value!r}, none of {', '.join(choices)}{suggest(value, choices)}"
        elif value and {int, float} & set(kinds):
            reason = f"{name} is {value!r}, not {'a whole number' if int in kinds else 'a number'}"
    return fail(path[1] if len(path) > 1 else "call", reason, f'run "{" ".join(path)} --help"')


def _name(param: Any) -> str:
    longest = max(param.opts, key=len)
    return longest if longest.startswith("-") else (param.metavar or param.name).rstrip(".").upper()


def _kinds(command: str, parameter: str) -> list[type]:
    """The types that a parameter of a command takes, without None."""
    hint = _hints(importlib.import_module(f"engine_overlay.cli.{command}").command).get(parameter)
    found = [one for one in (hint, *typing.get_args(hint)) if isinstance(one, type) and one is not types.NoneType]
    # Python 3.10 takes list[str] for a type.
    return [one for one in found if typing.get_origin(one) is None]


def _given(argv: Sequence[str], param: Any) -> str:
    """What stands behind an option, the last time that it is given; the messages of typer do not always say."""
    found = ""
    for position, word in enumerate(argv):
        option, equals, value = word.partition("=")
        if option in param.opts:
            found = value if equals else " ".join(argv[position + 1 : position + 1 + param.nargs])
    return found
