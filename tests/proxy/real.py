"""A release's own API server on scripted tokens, with or without the filter as its ``--middleware``."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import httpx

from engine_overlay.verify import releases
from tests.matrix import environment
from tests.proxy.processes import stop
from tests.serving import one, requests
from tests.warm.client import Process

MIDDLEWARE = ("--middleware", "engine_overlay.proxy.StrayTagFilter")


@contextlib.contextmanager
def serve(label: str, *arguments: str) -> Iterator[tuple[str, Path]]:
    """Start the server, overlay on but without its patches; its address and its log, which names aborted requests.

    Raises RuntimeError with the end of the log.
    """
    release = releases.named(label)
    releases.fetch(release)
    folder = Path(tempfile.mkdtemp(prefix="engine-overlay-proxy-"))
    port = one._free_port()
    command = ["-m", "tests.serving.server", release.engine]
    command += ["--modules-file", str(folder / "modules.json"), "--", "--model", str(one.model_folder())]
    command += ["--served-model-name", requests.MODEL, "--host", "127.0.0.1", "--port", str(port)]
    command += ["--max-model-len", "4096", "--enable-auto-tool-choice", "--reasoning-parser", "qwen3"]
    command += ["--tool-call-parser", "qwen3_coder", "--enable-log-requests", *arguments]
    own = {"VLLM_CACHE_ROOT": str(folder), "APHRODITE_CACHE_ROOT": str(folder), "VLLM_CPU_KVCACHE_SPACE": "1"}
    own |= {"APHRODITE_CPU_KVCACHE_SPACE": "1", "ENGINE_OVERLAY_DISABLE": _all_patches()}
    own |= {"VLLM_LOGGING_LEVEL": "INFO", "APHRODITE_LOGGING_LEVEL": "INFO"}
    env = environment.variables(release.sources, overlay=True, more=own)
    env["PYTHONPATH"] += os.pathsep + str(Path(one.__file__).with_name("platform"))
    log = folder / "server.log"
    with log.open("wb") as out:
        process = environment.start(command, env, out)
    try:
        _wait(process, f"http://127.0.0.1:{port}", log)
        yield f"http://127.0.0.1:{port}", log
    finally:
        stop(process)
        shutil.rmtree(folder, ignore_errors=True)


def request(engine: str, steps: Sequence[Sequence[int]], path: str, stream: bool, **more: Any) -> dict[str, Any]:
    """A request whose answer is these tokens, one delta a step."""
    body = {
        "model": requests.MODEL,
        "stream": stream,
        f"{engine}_xargs": {"script": json.dumps(list(map(list, steps)))},
    }
    if path == "/v1/responses":
        return body | {"input": "hi", "store": False, "max_output_tokens": 1000, **more}
    if path == "/v1/completions":
        return body | {"prompt": "Say hi", "max_tokens": 1000, **more}
    return body | {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 1000, **more}


def _all_patches() -> str:
    from engine_overlay import catalog

    return ",".join(catalog.load().entries)


def _wait(process: Process, url: str, log: Path) -> None:
    end = time.monotonic() + one.START_SECONDS
    while time.monotonic() < end and process.poll() is None:
        with contextlib.suppress(httpx.HTTPError):
            if httpx.get(url + "/health", timeout=5, trust_env=False).status_code == 200:
                return
        time.sleep(0.2)
    raise RuntimeError(f"{url}: no answer\n" + "\n".join(log.read_text(errors="replace").splitlines()[-30:]))
