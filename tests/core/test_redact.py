"""No key of a command line gets into a report; what only looks like one by its name stays readable."""

from __future__ import annotations

import time

import pytest

from engine_overlay import redact

SECRET = "s3cr3t-Value.42"


@pytest.mark.parametrize(
    "argv",
    [
        ["vllm", "serve", "m", "--api-key", SECRET],
        ["vllm", "serve", "m", f"--api-key={SECRET}"],
        ["vllm", "serve", "m", "--api_key", SECRET],
        ["vllm", "serve", "m", f"--API-KEY={SECRET}"],
        ["vllm", "serve", "m", "--api-key", "first", SECRET, "--port", "1"],
        ["vllm", "serve", "m", "--api-key", f"-{SECRET}"],
        ["vllm", "serve", "m", f"--api-k={SECRET}"],
        ["vllm", "serve", "m", "--hf-token", SECRET],
        ["vllm", "serve", "m", f"--hf_token={SECRET}"],
        ["vllm", "serve", "m", "--ssl-keyfile-password", SECRET],
        ["env", f"VLLM_API_KEY={SECRET}", "vllm", "serve"],
        ["sh", "-c", f"VLLM_API_KEY='{SECRET}' vllm serve --api-key={SECRET}"],
        ["sh", "-c", f"exec vllm serve m --api-key {SECRET} --port 1"],
        ["vllm", "serve", "--kv-transfer-config", f'{{"api_key": "{SECRET}", "port": 1}}'],
        ["vllm", "serve", "--config", f"{{\\\"secret\\\":\\\"{SECRET}\\\"}}"],
        ["vllm", "serve", "--otlp-traces-endpoint", f"https://user:{SECRET}@host:4317/x"],
        ["python", "-c", f"headers = {{'Authorization': 'Bearer {SECRET}'}}"],
    ],
    ids=" ".join,
)
def test_a_secret_is_hidden(argv):
    shown = " ".join(redact.words(argv))
    assert SECRET not in shown and redact.HIDDEN in shown


def test_a_long_word_costs_what_it_is_long():
    begin = time.process_time()
    for piece in ("--a-", "--a", "_a", "token ", "\\\\", "api-key=", "x://", "a.", "--api-key "):
        redact.text(piece * (20_000 // len(piece)))
    assert time.process_time() - begin < 4


def test_tokens_of_well_known_makers_are_hidden_wherever_they_are():
    for token in ("sk-proj-0123456789abcdef", "hf_ABCDEFGHabcdefgh1234", "ghp_ABCDEFGHabcdefgh1234"):
        assert redact.text(f"x {token} y") == f"x {redact.HIDDEN} y"


def test_what_is_no_secret_stays():
    argv = [
        "vllm", "serve", "Qwen/Qwen3-8B", "--tokenizer", "Qwen/Other", "--max-num-batched-tokens", "4096",
        "--tokens-only", "--ssl-keyfile", "/etc/key.pem", "--tokenizer-mode=auto", "--port", "8000", "-tp", "2",
        "--hf-overrides", '{"max_tokens": 5, "architectures": ["A"]}', "--reasoning-parser", "qwen3", "",
    ]  # fmt: skip
    assert redact.words(argv) == argv
    assert redact.words(["--api-key", "a", "b", "--port", "1"]) == ["--api-key", "***", "***", "--port", "1"]
    assert redact.words(["--api-key", "a", "-tp", "2"]) == ["--api-key", "***", "-tp", "2"]
    assert redact.words(["--hf-token", "--port", "1"]) == ["--hf-token", "--port", "1"]
    assert redact.words(["--api-key=a", "model"]) == ["--api-key=***", "model"]
