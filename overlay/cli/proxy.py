"""``engine-overlay proxy --upstream URL``: the stray-tag filter before a server that cannot be patched."""

from __future__ import annotations

import argparse
import asyncio
import logging
import socket
import sys
from typing import Any, NoReturn
from urllib.parse import urlsplit

from engine_overlay import log
from engine_overlay.cli.main import fail
from engine_overlay.proxy import options
from engine_overlay.settings import suggest

BACKLOG = 2048


def add(parser: argparse.ArgumentParser) -> None:
    known_args = parser.parse_known_args

    def error(message: str) -> NoReturn:
        # One line, and no usage before it.
        sys.exit(fail("proxy", message, 'run "engine-overlay proxy --help"'))

    def strict(args: Any = None, namespace: Any = None) -> tuple[argparse.Namespace, list[str]]:
        found, unknown = known_args(args, namespace)
        if unknown:
            names = [name for action in parser._actions for name in action.option_strings]
            error(f"unknown argument {unknown[0]}{suggest(unknown[0].partition('=')[0], names)}")
        return found, unknown

    parser.error = error  # type: ignore[method-assign]
    parser.parse_known_args = strict  # type: ignore[method-assign,assignment]
    parser.allow_abbrev = False
    parser.add_argument("--upstream", metavar="URL", required=True, help="the server, such as http://127.0.0.1:8000")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default: %(default)s)")
    parser.add_argument("--port", default="8080", help="port to listen on (default: %(default)s)")
    for name, meaning in options.NUMBERS.items():
        default = getattr(options.Options(), name)
        shown = meaning if default is None else f"{meaning} (default: {default})"
        parser.add_argument(f"--{name.replace('_', '-')}", metavar="N", help=shown)
    for name, meaning in options.NAMES.items():
        parser.add_argument(f"--{name.replace('_', '-')}", metavar="NAME", action="append", default=[], help=meaning)


def main(args: argparse.Namespace) -> int:
    try:
        import httpcore  # noqa: F401
        import uvicorn
    except ImportError as error:
        return fail("proxy", f"{error.name} is not installed", "run \"pip install 'engine-overlay[proxy]'\"")
    from engine_overlay.proxy.middleware import StrayTagFilter
    from engine_overlay.proxy.reverse import ReverseProxy

    reason = _bad_url(args.upstream)
    if reason:
        return fail("proxy", f"--upstream {args.upstream!r} {reason}", "give one such as http://127.0.0.1:8000")
    try:
        chosen = _options(args)
        port = options.number("--port", args.port)
        if port > 65535:
            raise options.BadOption(f"--port is {port}, more than 65535")
    except options.BadOption as error:
        return fail("proxy", str(error), 'run "engine-overlay proxy --help"')
    try:
        listening = _listen(args.host, port)
    except OSError as error:
        return fail("proxy", f"cannot listen on {args.host} port {port}: {error.strerror}", "choose another --port")
    log.configure("info")
    _quiet(logging.getLogger("uvicorn.error"))
    app = StrayTagFilter(ReverseProxy(args.upstream), chosen)
    config = uvicorn.Config(
        app, log_config=None, access_log=False, server_header=False, date_header=False, proxy_headers=False, ws="none",
        timeout_graceful_shutdown=5,
    )  # fmt: skip
    where = f"[{args.host}]" if ":" in args.host else args.host
    log.logger.info("proxy: http://%s:%d -> %s", where, listening.getsockname()[1], args.upstream)
    _look(args.upstream)
    try:
        uvicorn.Server(config).run(sockets=[listening])
    except KeyboardInterrupt:
        # Ctrl-C, after the open streams have had their time.
        pass
    return 0


def _options(args: argparse.Namespace) -> options.Options:
    numbers = {
        name: options.number(f"--{name.replace('_', '-')}", text)
        for name in options.NUMBERS
        if (text := getattr(args, name)) is not None
    }
    return options.Options(**numbers, tags=options.tags(args.thought_tag, args.call_tag))


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
        return not ended and not record.getMessage().startswith("ASGI callable returned without")

    uvicorn_log.addFilter(wanted)
    uvicorn_log.setLevel(logging.WARNING)
