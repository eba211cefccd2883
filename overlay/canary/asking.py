"""Requests to one server, as the ``openai`` client sends them. Needs httpx."""

from __future__ import annotations

import asyncio
import re
import time
from typing import Any
from urllib.parse import urlsplit

import httpx

from engine_overlay.canary.answer import Answer, Reader, message_of, read_whole
from engine_overlay.canary.questions import Question
from engine_overlay.log import one_line
from engine_overlay.proxy import sse

CONNECT_SECONDS = 10.0
IDLE_SECONDS = 2.0
"""A connection is used again within this time; servers close idle ones after 5 s or more."""

_ENDPOINT = "/chat/completions"


class CannotAsk(Exception):
    """The server cannot be asked: a reason and a next step."""


def base_of(url: str) -> str:
    """The address up to and with ``/v1``. Raises CannotAsk for what is no address."""
    step = "give one such as http://127.0.0.1:8000"
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError as error:
        raise CannotAsk(f"{url!r} is no URL ({error})", step) from None
    if parts.scheme not in ("http", "https"):
        raise CannotAsk(f"{url!r} does not begin with http:// or https://", step)
    if not parts.hostname or any(c.isspace() for c in url):
        raise CannotAsk(f"{url!r} names no host", step)
    if parts.query or parts.fragment:
        raise CannotAsk(f"{url!r} has more than scheme, host, port and folder", step)
    base = url.rstrip("/").removesuffix(_ENDPOINT)
    return base if base.endswith("/v1") else base + "/v1"


class Server:
    """One server. ``seconds``: the longest that one request may take. Use it as a context.

    ``shown`` is its address as it may be printed: without a password.
    """

    def __init__(self, url: str, *, model: str, key: str, max_tokens: int, seconds: float, **fields: Any) -> None:
        self.base = base_of(url)
        self.shown = re.sub(r"(?<=://)[^/@]*@", "", self.base)
        self.model = model
        self.engine = self.version = ""
        self.overlay = False
        self._max_tokens, self._seconds, self._fields = max_tokens, seconds, fields
        self._max_name, self._options = "max_tokens", True
        headers = {"user-agent": "engine-overlay-canary"}
        if key:
            headers["authorization"] = f"Bearer {key}"
        limits = httpx.Limits(max_connections=None, keepalive_expiry=IDLE_SECONDS)
        timeout = httpx.Timeout(seconds, connect=CONNECT_SECONDS)
        try:
            self._client = httpx.AsyncClient(headers=headers, timeout=timeout, limits=limits, follow_redirects=True)
        except UnicodeEncodeError:
            raise CannotAsk("the key has characters that no HTTP header can carry", "look at --api-key") from None

    async def __aenter__(self) -> Server:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._client.aclose()

    # -- before the run

    async def look(self) -> None:
        """Find the model and the fields that the server takes, by one small request. Raises CannotAsk."""
        models, owner = await self._models()
        if not self.model:
            if not models:
                raise CannotAsk(f"{self.shown}/models names no model", "give its name with --model")
            self.model = models[0]
        await self._first(models)
        await self._about(owner)

    async def _models(self) -> tuple[list[str], str]:
        url = self.base + "/models"
        try:
            response = await self._client.get(url, timeout=httpx.Timeout(30, connect=CONNECT_SECONDS))
        except httpx.HTTPError as error:
            raise _no_server(self.shown, error) from None
        # A key may be good for chat and not for the list.
        if response.status_code == 401 or (response.status_code == 403 and not self.model):
            raise _no_key(response)
        try:
            data = response.json()["data"] if response.status_code == 200 else []
            models = [str(entry["id"]) for entry in data]
            owner = str(data[0].get("owned_by", "")) if data else ""
        except (ValueError, KeyError, TypeError, AttributeError):
            models, owner = [], ""
        if not models and not self.model:
            kind = response.headers.get("content-type", "nothing").partition(";")[0]
            raise CannotAsk(
                f"{self.shown}/models answers {response.status_code} ({kind}) and no list of models",
                "check the address (it ends before /v1), or give --model if the server has no such list",
            )
        return models, owner

    async def _first(self, models: list[str]) -> None:
        question = Question(check="", name="", messages=({"role": "user", "content": "Say hello."},))
        for _ in range(3):
            answer = await self.ask(question)
            said = answer.refusal
            if answer.status == 400 and "max_completion_tokens" in said and self._max_name == "max_tokens":
                self._max_name = "max_completion_tokens"
            elif answer.status in (400, 422) and "stream_options" in said and self._options:
                self._options = False
            else:
                break
        if answer.status == 200:
            return
        if answer.status == 0:
            raise CannotAsk(
                f"{self.shown}{_ENDPOINT}: {answer.broke or 'no answer'}",
                "look at the server's log" if answer.broke else f"raise --timeout ({self._seconds:g} s)",
            )
        if answer.status in (401, 403):
            raise CannotAsk(f"the server refuses the key ({answer.status}: {said})", "check --api-key")
        if models and self.model not in models:
            known = ", ".join(models[:8]) + (", ..." if len(models) > 8 else "")
            raise CannotAsk(
                f"the server does not know the model {self.model!r} ({answer.status}: {said})",
                f"give one of these with --model: {known}",
            )
        if answer.status == 404:
            raise CannotAsk(f"{self.shown}{_ENDPOINT} is not there (404: {said})", "check the address and --model")
        raise CannotAsk(
            f"the server refuses a plain chat request ({answer.status}: {said})",
            "a model without a chat template, or one that does not chat, cannot be asked; see the server's log",
        )

    async def _about(self, owner: str) -> None:
        """Which engine it is, where it says so; for advice only."""
        self.engine = next((name for name in ("vllm", "aphrodite") if name in owner.lower()), "")
        root = self.base.removesuffix("/v1")
        for path in ("/version", "/metrics"):
            try:
                response = await self._client.get(root + path, timeout=5)
                if response.status_code != 200:
                    continue
                if path == "/metrics":
                    self.overlay = "engine_overlay_info" in response.text
                elif isinstance(version := response.json().get("version"), str):
                    self.version = version
            except (httpx.HTTPError, ValueError, AttributeError):
                # Behind a proxy these are usually not there.
                continue

    # -- the run

    async def ask(self, question: Question) -> Answer:
        """One answer; whatever goes wrong is in it. Raises nothing of HTTP."""
        answer = await self._once(question)
        if answer.status == 0 and answer.broke:
            # A connection that was closed while it was idle says nothing about the server.
            answer = await self._once(question)
        return answer

    async def _once(self, question: Question) -> Answer:
        answer = Answer(question.streamed)
        start = time.perf_counter()
        try:
            await asyncio.wait_for(self._read(question, answer, start), self._seconds)
        except (asyncio.TimeoutError, httpx.ReadTimeout, httpx.WriteTimeout):
            answer.timed_out = True
        except (httpx.HTTPError, httpx.InvalidURL, sse.TooLong) as error:
            answer.broke = one_line(error) or type(error).__name__
        answer.seconds = time.perf_counter() - start
        return answer

    async def _read(self, question: Question, answer: Answer, start: float) -> None:
        body = self.body(question)
        async with self._client.stream("POST", self.base + _ENDPOINT, json=body) as response:
            if response.status_code != 200:
                answer.refusal = message_of(await response.aread())
                answer.status = response.status_code
                return
            answer.status = 200
            media = response.headers.get("content-type", "").partition(";")[0].strip().lower()
            if not question.streamed or media != "text/event-stream":
                if question.streamed:
                    answer.odd.append(("no stream", f"content-type: {media or 'none'}"))
                read_whole(answer, await response.aread(), time.perf_counter() - start)
                return
            reader = Reader(answer)
            try:
                async for data in response.aiter_bytes():
                    reader.feed(data, time.perf_counter() - start)
            except httpx.HTTPError as error:
                answer.broke = one_line(error) or type(error).__name__
            reader.close(time.perf_counter() - start)

    def body(self, question: Question) -> dict[str, Any]:
        """The request as it is sent."""
        body: dict[str, Any] = {"model": self.model, "messages": list(question.messages)}
        body[self._max_name] = self._max_tokens
        body |= self._fields
        if question.tools:
            body["tools"] = list(question.tools)
        if question.streamed:
            body["stream"] = True
            if self._options:
                body["stream_options"] = {"include_usage": True}
        return body | dict(question.fields)


def _no_server(base: str, error: Exception) -> CannotAsk:
    text = one_line(error) or type(error).__name__
    if isinstance(error, httpx.UnsupportedProtocol):
        return CannotAsk(f"{base}: {text}", "give an address such as http://127.0.0.1:8000")
    if "CERTIFICATE" in text.upper():
        step = "give the certificate's authority with SSL_CERT_FILE"
    elif isinstance(error, httpx.TimeoutException):
        step = "check host and port, and that nothing on the way drops the connection"
    else:
        step = "start the server, or check host, port and scheme"
    return CannotAsk(f"no server answers at {base} ({text})", step)


def _no_key(response: httpx.Response) -> CannotAsk:
    said = message_of(response.content)
    given = "authorization" in response.request.headers
    reason = "refuses the key" if given else "wants a key"
    step = "check --api-key and OPENAI_API_KEY" if given else "give --api-key, or set OPENAI_API_KEY"
    return CannotAsk(f"the server {reason} ({response.status_code}: {said})", step)
