"""What is said of the patches is what a request meets: one server for each way to answer requests around them.

Every server is the release's own command, front end and engine core; only the executor is scripted, and spells
markers with ordinary tokens. Patched parsers of the Python API server understand them; nothing else does.
"""

from __future__ import annotations

import json
import subprocess

import pytest

from tests.serving import front_offline, fronts, rust_binary
from tests.serving.front import IN_PROCESS
from tests.serving.fronts import EXECUTOR, PARSERS, Front, serve, started

pytestmark = pytest.mark.engine

CHEAP = {IN_PROCESS: "1"}
SPELLED = "I write `</think>` now.</think>Done."
MENDED = ("I write `</think>` now.", "Done.")
PARSER, CORE, CONFIG, METRIC = (
    "spelled_markers",
    "grammar_behind_spelled_end_accept",
    "reasoning_strings",
    "metrics_gauge",
)


def read(front: Front) -> tuple[str | None, str | None]:
    message = front.chat(SPELLED)
    return message.get("reasoning"), message.get("content")


def said(front: Front, role: str) -> dict[str, tuple[str, str]]:
    return {p["id"]: (p["state"], p["path"]) for p in front.reports()[role]["patches"] if p["verdict"] == "apply"}


def line(front: Front, *, of: str) -> str:
    """The start-up line of the process in which these words are."""
    (found,) = [one for one in front.lines() if of in one and ": active: " not in one]
    return found


def out_of_path(found: str) -> str:
    """The part of a start-up line that names what requests do not meet."""
    return found.partition("out of path (")[2]


def plan(tmp_path, *command: str, **more: str) -> dict[str, str]:
    words = [str(fronts.environment.python()), "-m", "engine_overlay.cli", "plan", "--json", *command]
    done = subprocess.run(words, env=fronts.variables(tmp_path, **more), capture_output=True, text=True)
    (engine,) = json.loads(done.stdout)["engines"]
    found = {i: p["verdict"] for i, p in engine["patches"].items()}
    assert done.returncode == ("bypassed" in {p["path"] for p in engine["patches"].values()})
    return found


def refusal(command: list[str], tmp_path, **more: str) -> str:
    """The last line of a process that strict mode keeps from starting."""
    env = fronts.variables(tmp_path, **more, ENGINE_OVERLAY="strict")
    done = subprocess.run(command, cwd=fronts.environment.ROOT, env=env, capture_output=True, text=True, timeout=120)
    assert done.returncode
    return next(text for text in done.stderr.splitlines()[::-1] if "ENGINE_OVERLAY=strict" in text)


def test_a_python_server_its_core_and_a_headless_node(tmp_path):
    """Strict, as all is well: what is out of path in a process works in another one of the server."""
    port, handshake = fronts.free_port(), str(fronts.free_port())
    shared = ("--data-parallel-address", "127.0.0.1", "--data-parallel-rpc-port", handshake, *PARSERS)
    head = serve("--data-parallel-size-local", "0", "--enable-scale-out", *shared, *EXECUTOR, port=port)
    node = serve("--headless", *shared, *EXECUTOR)
    with started(tmp_path, port, head, node, ENGINE_OVERLAY="strict") as front:
        assert read(front) == MENDED
        api, headless, core = (said(front, role) for role in ("API server", "headless node", "engine core"))
        metrics = front.metrics()
        ids = front.post("/inference/v1/generate", tokens_in(SPELLED)).json()["choices"][0]["token_ids"]
    assert api[PARSER] == api[METRIC] == ("applied", "in") and api[CORE] == ("out of path", "elsewhere")
    assert headless[PARSER] == headless[METRIC] == ("out of path", "not asked")
    assert headless[CORE] == ("out of path", "elsewhere") and headless[CONFIG] == ("applied", "in")
    assert core[PARSER] == ("out of path", "elsewhere") and core[CORE] == ("applied", "in")
    assert f'engine_overlay_patch{{patch="{PARSER}",path="in",state="applied"}} 1.0' in metrics
    assert f'engine_overlay_patch{{patch="{CORE}",path="elsewhere",state="out of path"}} 0.0' in metrics
    assert PARSER in out_of_path(line(front, of="no API server runs on a headless node"))
    # Tokens in, tokens out: parsers have nothing to do with it, also where they have with everything else.
    assert bytes(token for token in ids if token < 256).decode() == SPELLED
    found = plan(tmp_path, "--", "vllm", "serve", "m", "--headless")
    assert (found[PARSER], found[CORE], found[CONFIG]) == ("out of path", "apply", "apply")


def tokens_in(text: str) -> dict:
    return {"token_ids": [1, 2, 3], "sampling_params": {"max_tokens": 400, "extra_args": fronts.script(text)}}


def test_the_rust_front_end(tmp_path):
    port, rust = fronts.free_port(), {"VLLM_USE_RUST_FRONTEND": "1"}
    rust["VLLM_RUST_FRONTEND_PATH"] = str(rust_binary.fetch(fronts.RELEASE))
    command = serve(*PARSERS, *EXECUTOR, port=port)
    with started(tmp_path, port, command, **rust) as front:
        assert read(front) == (SPELLED, None)
        reports, metrics = front.reports(), front.metrics()
        here, core = said(front, "supervisor"), said(front, "engine core")
    assert set(reports) == {"supervisor", "engine core"}
    assert here[PARSER] == here[METRIC] == ("out of path", "bypassed") and here[CONFIG] == ("applied", "in")
    assert core[CORE] == ("applied", "in") and "bypassed" not in {path for _, path in core.values()}
    assert "vllm:" in metrics and "engine_overlay" not in metrics
    began = line(front, of="the engine's Rust front end answers requests")
    assert PARSER in out_of_path(began) and CONFIG not in out_of_path(began)
    found = plan(tmp_path, **rust)
    assert (found[PARSER], found[CORE], found[CONFIG]) == ("out of path", "apply", "apply")
    assert "out of path: VLLM_USE_RUST_FRONTEND=1" in refusal(command, tmp_path, **rust)


@pytest.mark.every
def test_the_rust_command_with_a_node_of_its_own(tmp_path):
    port, binary = fronts.free_port(), rust_binary.fetch(fronts.RELEASE)
    command = [str(binary), *serve(port=port)[4:], "--python", str(fronts.environment.python()), *PARSERS[:4]]
    rust = {"VLLM_RUST_FRONTEND_PATH": str(binary)}
    with started(tmp_path, port, [*command, "--", *EXECUTOR], **rust) as front:
        assert read(front) == (SPELLED, None)
        here, core = said(front, "headless node"), said(front, "engine core")
    assert here[PARSER] == ("out of path", "bypassed") and here[CONFIG] == ("applied", "in")
    assert core[CORE] == ("applied", "in")
    assert PARSER in out_of_path(line(front, of="vllm-rs started this node"))
    found = plan(tmp_path, "--", "vllm-rs", "serve", "m")
    assert (found[PARSER], found[CORE]) == ("out of path", "apply")
    assert "out of path: vllm-rs started this node" in refusal([*command, "--", *EXECUTOR], tmp_path, **rust)


def test_a_server_of_token_ids(tmp_path):
    port = fronts.free_port()
    # It has no tokenizer, which the engine's reasoning parsers need.
    command = serve("--tokens-only", port=port)
    with started(tmp_path, port, command, ENGINE_OVERLAY="strict", **CHEAP) as front:
        got = front.post("/inference/v1/generate", tokens_in(SPELLED)).json()["choices"][0]["token_ids"]
        chat = front.post("/v1/chat/completions", {"messages": [{"role": "user", "content": "x"}]})
        here, metrics = said(front, "API server"), front.metrics()
    assert bytes(token for token in got if token < 256).decode() == SPELLED
    assert chat.status_code >= 400
    assert here[PARSER] == ("out of path", "not asked")
    assert f'engine_overlay_patch{{patch="{PARSER}",path="not asked",state="out of path"}} 0.0' in metrics
    assert PARSER in out_of_path(line(front, of="--tokens-only"))
    assert plan(tmp_path, "--", "vllm", "serve", "m", "--tokens-only")[PARSER] == "out of path"


def test_a_pooling_server(tmp_path):
    port = fronts.free_port()
    command = serve("--runner", "pooling", port=port)
    with started(tmp_path, port, command, ENGINE_OVERLAY="strict", **CHEAP) as front:
        vector = front.post("/v1/embeddings", {"input": "x"}).json()["data"][0]["embedding"]
        chat = front.post("/v1/chat/completions", {"messages": [{"role": "user", "content": "x"}]})
        here, metrics = said(front, "API server"), front.metrics()
    assert len(vector) == 64 and chat.status_code == 404
    assert here[PARSER] == here[CORE] == ("out of path", "not asked")
    assert here[METRIC] == ("applied", "in") and 'patch="metrics_gauge",path="in",state="applied"} 1.0' in metrics
    assert f'engine_overlay_patch{{patch="{PARSER}",path="not asked",state="out of path"}} 0.0' in metrics
    assert PARSER in out_of_path(line(front, of="--runner pooling"))
    assert plan(tmp_path, "--", "vllm", "serve", "m", "--runner", "pooling")[PARSER] == "out of path"


@pytest.mark.every
def test_a_program_without_a_server(tmp_path):
    """``LLM.chat`` gives the model's text: no parser reads it."""
    words = [str(fronts.environment.python()), "-m", "tests.serving.front_offline", SPELLED]
    env = fronts.variables(tmp_path, ENGINE_OVERLAY="strict", VLLM_ENABLE_V1_MULTIPROCESSING="0")
    done = subprocess.run(words, cwd=fronts.environment.ROOT, env=env, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout.rpartition(front_offline.MARK)[2])
    assert found["text"] == SPELLED
    assert found["patches"][PARSER][1] == "called" and found["patches"][CORE] == ["applied", "in"]
    (began,) = [one for one in done.stderr.splitlines() if "engine-overlay: vllm 0.33.0: patching" in one]
    assert PARSER in began.partition("if it serves or calls them itself: ")[2].partition(";")[0]
