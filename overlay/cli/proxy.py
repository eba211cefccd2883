"""``engine-overlay proxy --upstream URL``: the stray-tag filter before a server that cannot be patched."""

from __future__ import annotations

import asyncio
import logging
import socket
from typing import Annotated
from urllib.parse import urlsplit

import typer

from engine_overlay import log
from engine_overlay.cli.main import fail
from engine_overlay.proxy import options

EXAMPLES = ("engine-overlay proxy --upstream http://127.0.0.1:8000 --port 8080",)
EXITS = {0: "it was stopped", 2: "the call was not understood, or it cannot listen there"}
BACKLOG = 2048


def _meaning(name: str) -> str:
    meaning = {**options.NUMBERS, **options.NAMES}[name]
    default = getattr(options.Options(), name, None)
    return f"{meaning[:1].upper()}{meaning[1:]}" + (f" (default: {default})." if default is not None else ".")


def command(
    upstream: Annotated[
        str, typer.Option("--upstream", metavar="URL", help="The server, such as http://127.0.0.1:8000.")
    ],
    host: Annotated[str, typer.Option("--host", metavar="HOST", help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[str, typer.Option("--port", metavar="PORT", help="Port to listen on; 0 for any.")] = "8080",
    thinking_token_budget: Annotated[
        str | None, typer.Option("--thinking-token-budget", metavar="N", help=_meaning("thinking_token_budget"))
    ] = None,
    empty_thoughts: Annotated[
        str | None, typer.Option("--empty-thoughts", metavar="N", help=_meaning("empty_thoughts"))
    ] = None,
    blank_deltas: Annotated[
        str | None, typer.Option("--blank-deltas", metavar="N", help=_meaning("blank_deltas"))
    ] = None,
    max_body: Annotated[
        str | None, typer.Option("--max-body", metavar="N", help=_meaning("max_body"))
    ] = None,
    max_event: Annotated[
        str | None, typer.Option("--max-event", metavar="N", help=_meaning("max_event"))
    ] = None,
    max_choices: Annotated[
        str | None, typer.Option("--max-choices", metavar="N", help=_meaning("max_choices"))
    ] = None,
    max_memory: Annotated[
        str | None, typer.Option("--max-memory", metavar="N", help=_meaning("max_memory"))
    ] = None,
    thought_tag: Annotated[
        list[str] | None, typer.Option("--thought-tag", metavar="NAME", help=_meaning("thought_tag"))
    ] = None,
    call_tag: Annotated[list[str] | None, typer.Option("--call-tag", metavar="NAME", help=_meaning("call_tag"))] = None,
    allow_path: Annotated[
        list[str] | None,
        typer.Option("--allow-path", metavar="PATH", help="Pass on this path and what is below it; others get 403."),
    ] = None,
) -> int:
    """Stand before a server that cannot be patched, and take stray tags of thinking and of tools out of its answers.

    Requests and all other paths are passed on as they are. It runs until it is stopped with Ctrl-C or SIGTERM. The
    packages it needs come with the extra "proxy", and are in every engine's environment.
    """
    try:
        import anyio  # noqa: F401
        import httpcore  # noqa: F401
        import uvicorn
    except ImportError as error:
        return fail("proxy", f"{error.name} is not installed", "run \"pip install 'engine-overlay[proxy]'\"")
    from engine_overlay.proxy.front import Front
    from engine_overlay.proxy.middleware import StrayTagFilter
    from engine_overlay.proxy.reverse import ReverseProxy

    reason = _bad_url(upstream)
    if reason:
        return fail("proxy", f"--upstream {upstream!r} {reason}", "give one such as http://127.0.0.1:8000")
    numbers = {
        "thinking_token_budget": thinking_token_budget,
        "empty_thoughts": empty_thoughts,
        "blank_deltas": blank_deltas,
        "max_body": max_body,
        "max_event": max_event,
        "max_choices": max_choices,
        "max_memory": max_memory,
    }
    try:
        chosen = options.Options(
            **{
                name: options.number(f"--{name.replace('_', '-')}", text)
                for name, text in numbers.items()
                if text is not None
            },
            tags=options.tags(thought_tag or (), call_tag or ()),
        )
        number = options.number("--port", port)
        if number > 65535:
            raise options.BadOption(f"--port is {number}, more than 65535")
        for path in allow_path or ():
            if not path.startswith("/"):
                raise options.BadOption(f"--allow-path {path!r} does not begin with /")
    except options.BadOption as error:
        return fail("proxy", str(error), 'run "engine-overlay proxy --help"')
    try:
        listening = _listen(host, number)
    except OSError as error:
        return fail("proxy", f"cannot listen on {host} port {number}: {error.strerror}", "choose another --port")
    log.configure("info")
    _quiet(logging.getLogger("uvicorn.error"))
    inner = StrayTagFilter(ReverseProxy(upstream), chosen)
    app = Front(inner, allow_path or (), chosen.max_body, inner.room)
    config = uvicorn.Config(
        app, log_config=None, access_log=False, server_header=False, date_header=False, proxy_headers=False, ws="none",
        timeout_graceful_shutdown=5,
    )  # fmt: skip
    where = f"[{host}]" if ":" in host else host
    log.logger.info("proxy: http://%s:%d -> %s", where, listening.getsockname()[1], upstream)
    _look(upstream)
    try:
        uvicorn.Server(config).run(sockets=[listening])
    except KeyboardInterrupt:
        # Ctrl-C, after the open streams have had their time.
        pass
    return 0


def _bad_url(url: str) -> str | None:
    """What is wrong with the address of a server; None when nothing is."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        return f"is no URL ({error})"
    if parts.scheme not in ("http", "https"):
        return "does not begin with http:// or https://"
    if not parts.hostname or any(c.isspace() for c in url) or port == 0:
        return "names no host" if not parts.hostname else "is no URL"
    if parts.query or parts.fragment or parts.username:
        return "has more than scheme, host, port and folder"
    return None


def _listen(host: str, port: int) -> socket.socket:
    """A listening socket, made before anything else so that a port in use is told at once. Raises OSError."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((host, port))
        listening.listen(BACKLOG)
    except OSError:
        listening.close()
        raise
    return listening


def _look(url: str) -> None:
    """Say so when nobody listens there yet; it may come up later."""
    parts = urlsplit(url)
    try:
        port = parts.port or (443 if parts.scheme == "https" else 80)
        socket.create_connection((parts.hostname, port), timeout=2).close()
    except OSError as error:
        log.logger.warning("proxy: %s does not answer yet (%s); requests get 502 until it does", url, error)


def _quiet(uvicorn_log: logging.Logger) -> None:
    def wanted(record: logging.LogRecord) -> bool:
        # An answer that the server broke off is told in our own words; that open streams end with us needs no trace.
        kind = record.exc_info[0] if record.exc_info else None
        ended = kind is not None and issubclass(kind, (asyncio.CancelledError, KeyboardInterrupt))
        told = ("ASGI callable returned without", "Unsupported upgrade request")
        return not ended and not record.getMessage().startswith(told)

    uvicorn_log.addFilter(wanted)
    uvicorn_log.setLevel(logging.WARNING)
