"""A small client of an engine's HTTP server: control of its generation, and rollouts by token ids. Standard library."""

from __future__ import annotations

import json
import math
import re
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

_FLOOR = -9999.0
"""What servers send instead of -inf, which JSON cannot hold."""
_RESUME_TRIES = 5
_CACHING: dict[str, bool | None] = {}
_SWITCH = re.compile(r"enable_prefix_caching[\"']?\s*[=:]\s*(true|false)", re.IGNORECASE)


class ServerError(RuntimeError):
    """The server is not there, refuses or answers with something else; the message is one line with a next step."""


@dataclass(frozen=True, slots=True)
class Server:
    """An address such as ``http://host:8000`` (with or without ``/v1``); ``timeout`` in seconds for each answer."""

    address: str
    api_key: str | None = None
    timeout: float = 600.0

    @property
    def url(self) -> str:
        return self.address.rstrip("/").removesuffix("/v1")

    def control(
        self, path: str, *, query: dict[str, str] | None = None, body: Any = None, optional: bool = False
    ) -> Any:
        """POST to an endpoint of the development mode; its JSON, or {} for an empty answer.

        None when it is ``optional`` and not there. Raises :class:`ServerError`.
        """
        target = path + ("?" + urllib.parse.urlencode(query) if query else "")
        status, text = self._ask(target, {} if body is None else body)
        if status == 404 and optional:
            return None
        if status == 404:
            raise self._error(
                f"it has no {path}", "start it with VLLM_SERVER_DEV_MODE=1 (Aphrodite: APHRODITE_SERVER_DEV_MODE=1)"
            )
        if status != 200:
            raise self._error(f"{path} answered {status}: {_short(text)}", "see the server's log")
        return _parsed(text) if text.strip() else {}

    def resume(self) -> None:
        """Resume generation; tries again for some seconds, as a server that stays paused serves nobody."""
        for attempt in range(_RESUME_TRIES):
            try:
                self.control("/resume")
                return
            except ServerError:
                if attempt == _RESUME_TRIES - 1:
                    raise
                time.sleep(0.2 * 2**attempt)

    def caches_prefixes(self) -> bool | None:
        """Whether prefix caching is on, from /server_info; None when the server does not say. Asked once."""
        if self.url not in _CACHING:
            try:
                status, text = self._ask("/server_info")
            except ServerError:
                return None
            found = _SWITCH.search(text.replace("\\", "")) if status == 200 else None
            _CACHING[self.url] = found[1].lower() == "true" if found else None
        return _CACHING[self.url]

    def responses_carry_versions(self) -> bool:
        """Whether some response of this server has the field ``weight_versions`` (vllm 0.33: for those who ask)."""
        status, text = self._ask("/openapi.json")
        return status == 200 and '"weight_versions"' in text

    def model(self) -> str:
        """The name of the first model that is served."""
        status, text = self._ask("/v1/models")
        names = [entry.get("id") for entry in (_parsed(text) or {}).get("data", [])] if status == 200 else []
        if not names:
            raise self._error(f"/v1/models answered {status}: {_short(text)}", "is this an OpenAI-compatible server?")
        return names[0]

    def complete(self, model: str, prompts: Sequence[Sequence[int]], **sampling: Any) -> list[dict[str, Any]]:
        """Sample for each prompt of token ids, eight requests at a time; one dict per sample, in order.

        Keys: ``prompt`` (index), ``token_ids``, ``logprobs`` (nats, -inf where the server says -9999), ``text``,
        ``finish_reason``, ``weight_versions`` (or None). ``sampling``: fields of a completion request.
        """
        with ThreadPoolExecutor(8) as pool:
            answers = list(pool.map(lambda ids: self._complete(model, list(ids), sampling), prompts))
        return [sample | {"prompt": i} for i, samples in enumerate(answers) for sample in samples]

    def _complete(self, model: str, ids: list[int], sampling: dict[str, Any]) -> list[dict[str, Any]]:
        # Older servers ignore the last one.
        asked = {"logprobs": 1, "return_token_ids": True, "return_weight_versions": True}
        body = {"model": model, "prompt": ids, **asked, **sampling}
        status, text = self._ask("/v1/completions", body)
        if status != 200:
            raise self._error(f"/v1/completions answered {status}: {_short(text)}", "see the server's log")
        found = []
        for choice in (_parsed(text) or {}).get("choices", []):
            tokens = choice.get("token_ids")
            numbers = (choice.get("logprobs") or {}).get("token_logprobs")
            if tokens is None or numbers is None or len(tokens) != len(numbers):
                raise self._error(
                    "its completions carry no token ids with log-probabilities",
                    "use vllm 0.18 or aphrodite-engine 0.20 and later, without a proxy that drops fields",
                )
            floats = [-math.inf if n is None or n <= _FLOOR else float(n) for n in numbers]
            found.append(
                {
                    "token_ids": tokens,
                    "logprobs": floats,
                    "text": choice.get("text", ""),
                    "finish_reason": choice.get("finish_reason"),
                    "weight_versions": choice.get("weight_versions"),
                }
            )
        return found

    def _ask(self, path: str, body: Any = None) -> tuple[int, str]:
        """GET, or POST of JSON; status and text. Raises ServerError when there is no answer at all."""
        headers = {"Content-Type": "application/json"}
        if self.api_key:
            headers["Authorization"] = f"Bearer {self.api_key}"
        data = None if body is None else json.dumps(body).encode()
        try:
            request = urllib.request.Request(self.url + path, data=data, headers=headers)
            with urllib.request.urlopen(request, timeout=self.timeout) as answer:
                return answer.status, answer.read().decode("utf-8", "replace")
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode("utf-8", "replace")
        except ValueError as error:
            raise self._error(f"it is no address ({error})", "write it like http://localhost:8000") from None
        except (OSError, urllib.error.URLError) as error:
            reason = getattr(error, "reason", error)
            raise self._error(f"not reachable: {reason}", "is it running, and is the port right?") from None

    def _error(self, reason: str, step: str) -> ServerError:
        return ServerError(f"engine-overlay: server {self.url}: {reason}; {step}")


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return None


def _short(text: str) -> str:
    return " ".join(text.split())[:200]
