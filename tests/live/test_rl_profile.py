"""The rl profile on the released engine: the API server and ``LLM(...)``, with nothing of the user's and with some."""

from __future__ import annotations

import json
import math
import subprocess
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from tests.live import environment
from tests.live.server import MODEL, serve

PROFILE = {
    "logprobs_mode": "processed_logprobs",
    "enable_prefix_caching": False,
    "async_scheduling": False,
    "cascade_attention": False,
    "lm_head_dtype": "float32",
}
_OWN = ("--logprobs-mode", "raw_logprobs", "--enable-prefix-caching", "--hf-overrides", '{"head_dtype": "model"}')
_SAMPLED = {"temperature": 0.7, "top_k": 2, "seed": 1, "logprobs": 5, "max_tokens": 8}

_OFFLINE = """
import json, sys
from vllm import LLM, SamplingParams
if __name__ == "__main__":
    llm = LLM(sys.argv[1], dtype="bfloat16", enforce_eager=True, max_model_len=512, max_num_seqs=4)
    params = SamplingParams(temperature=0.7, top_k=2, seed=1, logprobs=5, max_tokens=8)
    (answer,) = llm.generate(["The weather in Paris"], params)
    steps = [[entry.logprob for entry in step.values()] for step in answer.outputs[0].logprobs]
    from engine_overlay import status
    print("SEEN" + json.dumps({"values": status.report()["values"], "steps": steps}))
"""


def told(log: str) -> list[str]:
    """The lines about the profile, of all processes."""
    return [line.partition("engine-overlay: ")[2] for line in log.splitlines() if "profile rl:" in line]


def served(model: Path, state: Path, *flags: str) -> dict[str, Any]:
    """What a server with these flags logs and shows, and the log-probabilities of one completion."""
    python = environment.prepare(overlay=True)
    variables = {"ENGINE_OVERLAY_PROFILE": "rl", "ENGINE_OVERLAY_STATE_DIR": str(state)}
    with serve(python, model, "--dtype", "bfloat16", *flags, variables=variables) as server:
        body = json.dumps({"model": MODEL, "prompt": "The weather in Paris", **_SAMPLED}).encode()
        headers = {"Content-Type": "application/json"}
        with urllib.request.urlopen(urllib.request.Request(f"{server.url}/v1/completions", body, headers)) as got:
            answer = json.load(got)
        command = [str(python), "-m", "engine_overlay.cli", "status", "--state-dir", str(state)]
        shown = subprocess.run(command, capture_output=True, text=True, env=environment.variables()).stdout
        return {"told": told(server.log.read_text()), "shown": shown, "answer": answer["choices"][0]["logprobs"]}


def spelled(values: dict[str, Any]) -> str:
    return ", ".join(f"{name}={value}" for name, value in values.items())


def chosen(answer: dict[str, Any]) -> list[float]:
    """Per token, what the log-probabilities of all tokens that were listed sum to as probabilities."""
    return [sum(math.exp(x) for x in step.values()) for step in answer["top_logprobs"]]


@pytest.fixture(scope="module")
def plain(model: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return served(model, tmp_path_factory.mktemp("state"))


@pytest.fixture(scope="module")
def own(model: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return served(model, tmp_path_factory.mktemp("state"), *_OWN)


@pytest.fixture(scope="module")
def offline(model: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("offline")
    script = folder / "offline.py"
    script.write_text(_OFFLINE)
    variables = {"ENGINE_OVERLAY_PROFILE": "rl", "ENGINE_OVERLAY_STATE_DIR": str(folder / "state")}
    done = subprocess.run(
        [str(environment.prepare(overlay=True)), str(script), str(model)],
        cwd=folder,
        env=environment.variables() | variables,
        capture_output=True,
        text=True,
        timeout=900,
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith("SEEN")]
    assert lines, done.stderr[-3000:]
    return json.loads(lines[0].removeprefix("SEEN")) | {"told": told(done.stderr)}


def test_the_server_has_the_profiles_values_and_says_so_once(plain: dict[str, Any]) -> None:
    assert plain["told"] == [f"vllm 0.32.0: profile rl: {spelled(PROFILE)}"]
    assert f"profile rl, vllm: {spelled(PROFILE)}" in plain["shown"]


def test_the_servers_log_probabilities_are_of_what_was_kept(plain: dict[str, Any]) -> None:
    for step, total in zip(plain["answer"]["top_logprobs"], chosen(plain["answer"]), strict=True):
        # Two tokens are kept; the others that were asked for have no probability, which JSON cannot write as -inf.
        assert sorted(step.values())[:-2] == [-9999.0] * (len(step) - 2)
        assert total == pytest.approx(1.0, abs=1e-5)


@pytest.mark.every
def test_the_users_values_win_on_the_server_in_one_line(own: dict[str, Any]) -> None:
    values = PROFILE | {"logprobs_mode": "raw_logprobs", "enable_prefix_caching": True, "lm_head_dtype": "bfloat16"}
    first, second = own["told"]
    assert first == f"vllm 0.32.0: profile rl: {spelled(values)}"
    assert second.startswith("WARNING: vllm 0.32.0: profile rl: not as the profile wants: logprobs_mode=raw_log")
    assert "enable_prefix_caching=True (set by you" in second and "lm_head_dtype=bfloat16 (set by you" in second
    assert f"profile rl, vllm: {spelled(values)}" in own["shown"]
    # Raw: over the whole vocabulary, at temperature 1.
    assert all(total < 0.9 for total in chosen(own["answer"]))


@pytest.mark.every
def test_offline_the_values_and_the_log_probabilities_are_the_same(offline: dict[str, Any]) -> None:
    assert offline["values"] == {"vllm": PROFILE}
    assert offline["told"] == [f"vllm 0.32.0: profile rl: {spelled(PROFILE)}"]
    for step in offline["steps"]:
        assert sum(math.exp(x) for x in step) == pytest.approx(1.0, abs=1e-5)
        assert sum(math.isinf(x) for x in step) == len(step) - 2
