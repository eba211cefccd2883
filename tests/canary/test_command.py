"""``engine-overlay canary`` as a process: exit codes, lines, JSON, report, and a terminal."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.canary import broken

QUICK = ("--requests", "1", "--parallel", "4", "--max-tokens", "256")


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with broken.served() as address:
        yield address


def _environment(**more: str) -> dict[str, str]:
    return {k: v for k, v in os.environ.items() if k not in ("OPENAI_API_KEY", "NO_COLOR")} | more


def run(*words: str, **more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "engine_overlay.cli", "canary", *words],
        capture_output=True, text=True, timeout=120, env=_environment(**more),
    )  # fmt: skip


def test_a_healthy_server_is_0(url: str, tmp_path: Path) -> None:
    done = run(f"{url}/healthy/v1/", *QUICK, "--out", str(tmp_path / "r.html"))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "none faulty" in done.stdout and "FAULT" not in done.stdout
    assert done.stderr.splitlines()[-1] == f"engine-overlay: canary: report: {tmp_path / 'r.html'}"
    assert "\x1b" not in done.stdout + done.stderr
    assert "data:image/png" in (tmp_path / "r.html").read_text()


def test_a_finding_is_1_and_tells_what_why_and_what_next(url: str) -> None:
    done = run(f"{url}/as-strings", *QUICK, "--only", "types")
    assert done.returncode == 1
    assert "record_integer: value is string" in done.stdout
    for label in ("seen", "text", "event", "why", "next"):
        assert f"\n   {label}" in done.stdout
    assert '"arguments"' in done.stdout


def test_json_is_all_of_standard_output(url: str) -> None:
    done = run(f"{url}/no-done", *QUICK, "--only", "text", "--json")
    data = json.loads(done.stdout)
    assert done.returncode == 1
    assert data["findings"][0]["kind"] == "no [DONE]" and data["faulty"] == data["requests"] == 7


@pytest.mark.parametrize(
    ("folder", "words", "said"),
    [
        ("", ["--only", "typs"], "--only typs: no such check, did you mean types?"),
        ("", ["--only", "text", "--skip", "text"], "--only and --skip leave no check"),
        ("", ["--only", "own"], "--only own has no prompts"),
        ("", ["--parallel", "0"], "--parallel is '0'"),
        ("", ["--parallel", "1,x"], "--parallel is '1,x'"),
        ("", ["--requests", "0"], "--requests is 0"),
        ("", ["--timeout", "0"], "--timeout is 0"),
        ("", ["--prompts", "/nowhere"], "cannot read /nowhere"),
        ("", ["--out", "/nowhere/r.html"], "the folder of /nowhere/r.html is not there"),
        ("healthy", ["--model", "gpt"], "does not know the model 'gpt'"),
        ("key", [], "wants a key (401: Unauthorized)"),
        ("key", ["--api-key", "wrong"], "refuses the key"),
        ("key", ["--api-key", "\u00e9\u4e2d"], "the key has characters that no HTTP header can carry"),
        ("no-list", [], "404 (application/json) and no list of models"),
        ("healthy/v1/nothing", [], "no list of models"),
    ],
)
def test_what_cannot_be_asked_is_2_and_one_line(url: str, folder: str, words: list[str], said: str) -> None:
    done = run(f"{url}/{folder}", *QUICK, *words)
    assert done.returncode == 2, done.stdout + done.stderr
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert line.startswith("engine-overlay: canary: ") and said in line and "; " in line


@pytest.mark.parametrize("address", ["127.0.0.1:8000", "http://", "http://x y/", "http://h/?a=1", "http://[::1", "ftp://h"])
def test_what_is_no_address(address: str) -> None:
    done = run(address)
    assert done.returncode == 2 and len(done.stderr.splitlines()) == 1, done.stderr


def test_no_server_there() -> None:
    done = run("http://127.0.0.1:9")
    assert done.returncode == 2
    assert "no server answers at http://127.0.0.1:9/v1" in done.stderr and "start the server" in done.stderr


def test_a_busy_server_is_2_since_nothing_was_judged(url: str) -> None:
    done = run(f"{url}/busy", *QUICK, "--only", "text")
    assert done.returncode == 2
    assert "no answer could be judged: the server is busy (429)" in done.stderr.splitlines()[-1]


def test_key_and_model_reach_the_server(url: str) -> None:
    assert run(f"{url}/key", *QUICK, "--only", "text", "--api-key", "right").returncode == 0
    assert run(f"{url}/key", *QUICK, "--only", "text", OPENAI_API_KEY="right").returncode == 0
    assert "other at" in run(f"{url}/healthy", *QUICK, "--only", "text", "--model", "other").stdout
    assert run(f"{url}/no-list", *QUICK, "--only", "text", "--model", "made-up").returncode == 0


def test_a_password_in_the_address_is_used_and_not_shown(url: str) -> None:
    address = url.replace("://", "://me:secret@")
    done = run(f"{address}/basic", *QUICK, "--only", "text")
    assert done.returncode == 0, done.stderr
    refused = run(f"{address}/no-list", *QUICK)
    assert refused.returncode == 2
    assert "secret" not in done.stdout + done.stderr + refused.stderr


def test_prompts_of_a_user(url: str, tmp_path: Path) -> None:
    file = tmp_path / "mine.txt"
    file.write_text('What is bread?\n{"prompt": "Hi", "stream": false}\n')
    done = run(f"{url}/no-finish", *QUICK, "--prompts", str(file), "--only", "own", "--json")
    data = json.loads(done.stdout)
    assert data["requests"] == 2 and data["faulty"] == 2


def test_no_proxy_of_the_environment_is_respected(url: str) -> None:
    done = run(f"{url}/healthy", *QUICK, "--only", "text", HTTP_PROXY="http://127.0.0.1:9", NO_PROXY="127.0.0.1")
    assert done.returncode == 0, done.stderr


def test_on_a_terminal_there_is_a_bar_and_colours(url: str) -> None:
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "engine_overlay.cli", "canary", f"{url}/as-strings", *QUICK, "--only", "text,types"],
        stdout=theirs, stderr=theirs, stdin=theirs, env=_environment(TERM="xterm-256color", COLUMNS="140"),
    )  # fmt: skip
    os.close(theirs)
    seen = b""
    try:
        while piece := os.read(ours, 65536):
            seen += piece
    except OSError:
        # Linux says so when the other side is closed.
        pass
    os.close(ours)
    assert process.wait(60) == 1
    text = seen.decode()
    assert "\x1b[" in text and "\u2501" in text and "FAULT" in text


def test_interrupted_it_tells_what_it_has(url: str) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "engine_overlay.cli", "canary", f"{url}/healthy", "--requests", "500"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=_environment(),
    )  # fmt: skip
    process.stderr.readline()
    time.sleep(2)
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "stopped early: interrupted" in out and "none faulty" in out
