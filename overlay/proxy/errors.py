"""What the proxy says in its own words: an answer with an error object, and an event with one."""

from __future__ import annotations

from typing import Any

from engine_overlay.proxy import request
from engine_overlay.proxy.stream import compact

BROKEN = "engine_overlay.broken"
"""Key of a message of a body: the server broke off, and why. It is the last one; no end of the body follows."""


def error(message: str, status: int) -> dict[str, Any]:
    kind = "upstream_error" if status >= 500 else "invalid_request_error"
    return {"message": f"engine-overlay proxy: {message}", "type": kind, "param": None, "code": status}


async def answer(send: Any, status: int, message: str) -> None:
    """A whole answer."""
    content = compact({"error": error(message, status)})
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(content)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": content, "more_body": False})


def event(path: str, message: str) -> bytes:
    """The event that ends a stream, in the form of the endpoint."""
    told = error(message, 502)
    if request.endpoint(path) == request.RESPONSES:
        told = {"type": "error", "code": "502", "message": told["message"], "param": None}
        return b"event: error\ndata: " + compact(told) + b"\n\n"
    return b"data: " + compact({"error": told}) + b"\n\n"
