"""Whether requests meet what a patch does: by command line, environment, role and what is loaded in the process."""

from __future__ import annotations

import json
import subprocess

import pytest

from engine_overlay import commandline, reach
from engine_overlay.reach import BYPASSED, CALLED, ELSEWHERE, IN, NOT_ASKED
from tests.core.support import answer, engine, louder_patch, python, third_party

RUST = {"VLLM_USE_RUST_FRONTEND": "1"}
SERVING = "vllm.entrypoints.openai.chat_completion.serving"
POOLING = "vllm.entrypoints.pooling.embed.serving"
SCOPES = ("server", "metrics", "config", "engine core", "worker", "command")


def process(text: str | None, role: str = "main", environ=None, **more) -> reach.Place:
    launch = commandline.given(commandline.split(text)) if text else None
    return reach.of_process("vllm", launch, environ or {}, role, **more)


def words(place: reach.Place) -> list[str]:
    return [place.of((scope,)).word for scope in SCOPES]


@pytest.mark.parametrize(
    ("text", "role", "more", "name", "server", "metrics"),
    [
        ("vllm serve m", "main", {}, "API server", IN, IN),
        ("vllm serve m", "main", {"environ": {"VLLM_USE_RUST_FRONTEND": "0"}}, "API server", IN, IN),
        ("vllm serve m", "main", {"environ": RUST}, "supervisor", BYPASSED, BYPASSED),
        # Releases before 0.22 do not know the variable, and the server's module does not read it.
        ("vllm serve m", "main", {"environ": RUST, "rust": False}, "API server", IN, IN),
        ("python -m vllm.entrypoints.openai.api_server --model m", "main", {"environ": RUST}, "API server", IN, IN),
        ("vllm serve m --headless", "main", {}, "headless node", NOT_ASKED, NOT_ASKED),
        ("vllm serve m --headless", "main", {"environ": RUST}, "headless node", NOT_ASKED, NOT_ASKED),
        ("vllm serve m --api-server-count 0", "main", {}, "headless node", NOT_ASKED, NOT_ASKED),
        (
            "vllm serve m --headless", "main", {"parent": ["/x/vllm-rs", "serve", "m"]},
            "headless node", BYPASSED, BYPASSED,
        ),
        ("vllm serve m --grpc", "main", {}, "gRPC server", BYPASSED, BYPASSED),
        ("python -m vllm.entrypoints.grpc_server --model m", "main", {}, "gRPC server", BYPASSED, BYPASSED),
        ("vllm serve m --tokens-only", "main", {"loaded": {SERVING}}, "API server", NOT_ASKED, IN),
        ("vllm serve m --runner pooling", "main", {}, "API server", NOT_ASKED, IN),
        ("vllm serve m --convert=embed", "main", {}, "API server", NOT_ASKED, IN),
        ("vllm serve m --convert none", "main", {}, "API server", IN, IN),
        ("vllm serve m --runner generate", "main", {"loaded": {POOLING, SERVING}}, "API server", IN, IN),
        ("vllm serve m", "main", {"loaded": {POOLING}}, "API server", NOT_ASKED, IN),
        ("vllm serve m", "main", {"loaded": {"vllm.entrypoints.pooling.base.serving"}}, "API server", IN, IN),
        ("vllm serve m --api-server-count 2", "main", {}, "supervisor", ELSEWHERE, ELSEWHERE),
        ("vllm serve m -dp 2", "main", {}, "supervisor", ELSEWHERE, ELSEWHERE),
        ("vllm serve m -dp 2", "main", {"loaded": {SERVING}}, "API server", IN, IN),
        ("vllm serve m -dp 2 --data-parallel-rank 0", "main", {}, "API server", IN, IN),
        ("vllm serve m -dp 2 -dph -dpl 1", "main", {}, "API server", IN, IN),
        ("vllm serve m -dp 2", "API server (ApiServer_1)", {}, "API server (ApiServer_1)", IN, IN),
        (None, "main", {}, "main", CALLED, CALLED),
        (None, "main", {"environ": RUST}, "main", CALLED, CALLED),
        (None, "main", {"loaded": {SERVING}}, "main", IN, IN),
    ],
)  # fmt: skip
def test_the_code_of_the_api_server(text, role, more, name, server, metrics):
    place = process(text, role, **more)
    assert (place.name, *words(place)[:2]) == (name, server, metrics)


@pytest.mark.parametrize(
    ("role", "core", "worker"),
    [
        ("engine core (EngineCore_DP0)", IN, IN),
        ("worker (VllmWorker-1)", ELSEWHERE, IN),
        ("coordinator", ELSEWHERE, ELSEWHERE),
        ("main", ELSEWHERE, ELSEWHERE),
    ],
)
def test_what_works_in_other_processes_is_out_of_path_by_role(role, core, worker):
    place = process("vllm serve m", role)
    assert (place.of(("engine core",)).word, place.of(("worker",)).word) == (core, worker)
    if role != "main":
        # Whatever front end there is: strict never refuses in a child.
        assert process("vllm serve m", role, RUST).of(("server",)).word == ELSEWHERE
    assert place.of(("server", "engine core", "worker")).word in (IN, ELSEWHERE)


def test_a_front_end_that_is_not_python_leaves_the_rest_of_the_server_in_path():
    launch = commandline.given(["vllm", "serve", "m"])
    assert words(reach.of_server("vllm", launch, RUST)) == [BYPASSED, BYPASSED, IN, IN, IN, IN]
    assert words(reach.of_server("vllm", None, RUST)) == [BYPASSED, BYPASSED, IN, IN, IN, IN]
    assert words(reach.of_server("vllm", None, {})) == [IN] * 6
    # Part of it is in the engine's core, which such a server has too.
    assert reach.of_server("vllm", launch, RUST).of(("server", "engine core")).word == IN


def test_pooling_concerns_what_is_about_text_and_no_patch_of_others():
    place = reach.of_server("vllm", commandline.given(["vllm", "serve", "m", "--runner", "pooling"]), {})
    assert words(place) == [NOT_ASKED, IN, IN, NOT_ASKED, NOT_ASKED, IN]
    assert place.of(("server",), built_in=False).word == IN


@pytest.mark.parametrize(
    ("files", "word"),
    [
        ({"config.json": {"architectures": ["Qwen3ForCausalLM"]}}, IN),
        ({"config.json": {"architectures": ["Qwen3ForSequenceClassification"]}}, NOT_ASKED),
        ({"config.json": {"architectures": ["InternVLChatModel"]}}, IN),
        # A name that says nothing: ChatGLMModel generates, BertModel does not.
        ({"config.json": {"architectures": ["ChatGLMModel"]}}, IN),
        (
            {
                "config.json": {"architectures": ["Qwen3ForCausalLM"]},
                "modules.json": [{"type": "sentence_transformers.models.Pooling"}],
            },
            NOT_ASKED,
        ),
        ({}, IN),
    ],
)
def test_a_model_for_pooling_is_known_by_its_files(tmp_path, files, word):
    for name, data in files.items():
        (tmp_path / name).write_text(json.dumps(data))
    assert process(f"vllm serve {tmp_path}").of(("server",)).word == word
    assert process(f"vllm serve {tmp_path} --runner generate").of(("server",)).word == IN


def test_a_config_file_counts_where_the_command_line_says_nothing(tmp_path):
    file = tmp_path / "c.yaml"
    file.write_text("# ours\nheadless: true  # a node\nrunner: 'pooling'\nother:\n  headless: false\n")
    assert process(f"vllm serve m --config {file}").name == "headless node"
    file.write_text("headless: false\nrunner: pooling\n")
    assert process(f"vllm serve m --config {file}").of(("server",)).word == NOT_ASKED
    assert process(f"vllm serve m --config {file} --runner generate").of(("server",)).word == IN
    assert process(f"vllm serve m --config {tmp_path / 'none.yaml'}").of(("server",)).word == IN


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("vllm-rs serve m", BYPASSED),
        ("docker run -e VLLM_USE_RUST_FRONTEND=1 vllm/vllm-openai:v0.33.0 m", BYPASSED),
        ("docker run vllm/vllm-openai:v0.33.0 --model m", IN),
        ("python -m vllm.entrypoints.cli.main serve m --headless", NOT_ASKED),
        ("python -m vllm.entrypoints.launchers.grpc_server --model m", BYPASSED),
        ("smg --worker-urls http://a:8000 http://b:8000", IN),
        ("smg launch --worker-urls grpc://a:50051 --model-path m", BYPASSED),
        ("python -m sglang_router.launch_router --worker-urls grpc://a:1", BYPASSED),
        ("python3 -m sglang_router.launch_router --worker-urls http://a:1", IN),
        ("vllm-router --worker-urls http://a:1 --policy round_robin", IN),
        ("python -m vllm_router.app --static-backends http://a:1", IN),
        ("python -m dynamo.frontend --router-mode kv", BYPASSED),
        ("python -m dynamo.frontend --dyn-chat-processor vllm --tool-call-parser hermes", IN),
        ("python -m dynamo.frontend --dyn-chat-processor=sglang", BYPASSED),
        ("python -m dynamo.vllm --model m", BYPASSED),
    ],
)
def test_front_ends_and_gateways_are_read_from_their_command_lines(text, word):
    launch = commandline.given(commandline.split(text))
    way = reach.of_server("vllm", launch, launch.environ).of(("server",))
    assert way.word == word
    assert not way.out or way.reason and "\n" not in str(way)


@pytest.mark.parametrize(
    ("argv", "original", "found"),
    [
        (["/x/bin/vllm", "serve", "m"], ["/x/python", "/x/bin/vllm", "serve", "m"], "command"),
        (["-m"], ["python", "-X", "dev", "-m", "vllm.entrypoints.openai.api_server"], "module"),
        (["/x/vllm/entrypoints/openai/api_server.py", "--model", "m"], [], "module"),
        (["-c", "vllm", "serve", "m"], ["python", "-c", "1", "vllm", "serve", "m"], None),
        (["bench.py", "vllm", "serve", "m"], ["python", "bench.py", "vllm", "serve", "m"], None),
        (["/x/bin/vllm", "bench", "serve"], [], None),
        ([""], ["python"], None),
    ],
)
def test_only_the_program_itself_is_a_server(argv, original, found):
    launch = reach._command(argv, original)
    assert (launch and launch.way) == found


def test_the_line_at_the_start_keeps_apart_what_requests_meet():
    ways = [
        ("a", reach.Way(IN)), ("b", reach.Way(BYPASSED, "others answer")), ("c", reach.Way(IN)),
        ("d", reach.Way(ELSEWHERE, "it works in the workers")), ("e", reach.Way(CALLED, "no API server")),
        ("f", reach.Way(NOT_ASKED, "--x: none")),
    ]  # fmt: skip
    assert reach.line(ways) == (
        "patching a, c; if it serves or calls them itself: e; of other processes: d; out of path (others answer): b; "
        "out of path (--x: none): f"
    )
    assert reach.line([]) == "nothing to patch"


# -- a process

COMMAND = "import sys; from vllm.greeting import Greeter; print('\"' + Greeter().greet() + '\"')\n"
REPORT = COMMAND + (
    "import json; from engine_overlay import status; r = status.report()\n"
    "print(json.dumps([r['role'], *([p[k] for k in ('state', 'loaded', 'path')] for p in r['patches']"
    " if p['id'] == 'louder')]))\n"
)


@pytest.fixture
def folder(tmp_path):
    third_party(engine(tmp_path), "loud_patches", louder_patch(tmp_path))
    (tmp_path / "vllm" / "envs.py").write_text("# VLLM_USE_RUST_FRONTEND\n")
    return tmp_path


def serve(folder, *flags: str, code: str = REPORT, **env: str) -> subprocess.CompletedProcess[str]:
    """The engine's command, as its console script starts it."""
    start = "from engine_overlay import importer; importer.install('api')\n"
    script = folder / "bin" / "vllm"
    script.parent.mkdir(exist_ok=True)
    script.write_text(start + code)
    run = f"import subprocess, sys; sys.exit(subprocess.call([sys.executable, {str(script)!r}, 'serve', *{flags!r}]))"
    return python(folder, run, **env)


def test_a_server_whose_requests_others_answer_says_so_everywhere(folder):
    assert answer(serve(folder, "m")) == ["API server", ["applied", "applied", "in"]]
    done = serve(folder, "m", VLLM_USE_RUST_FRONTEND="1")
    assert answer(done) == ["supervisor", ["out of path", "applied", "bypassed"]]
    (line,) = [text for text in done.stderr.splitlines() if "INFO" in text or "vllm 0.1.5:" in text]
    assert line.endswith(
        "vllm 0.1.5: out of path (VLLM_USE_RUST_FRONTEND=1: the engine's Rust front end answers requests with its own "
        "parsers): louder"
    )


def test_strict_refuses_it_with_one_line_and_no_child(folder):
    done = serve(folder, "m", ENGINE_OVERLAY="strict", VLLM_USE_RUST_FRONTEND="1")
    assert done.returncode == 1
    assert done.stderr.strip().splitlines()[-1] == (
        "engine_overlay.importer.Refused: engine-overlay: ENGINE_OVERLAY=strict and louder is refused on vllm 0.1.5: "
        "out of path: VLLM_USE_RUST_FRONTEND=1: the engine's Rust front end answers requests with its own parsers; "
        "unset VLLM_USE_RUST_FRONTEND, set ENGINE_OVERLAY=on, or name it in ENGINE_OVERLAY_DISABLE"
    )
    for flags in (("m",), ("m", "--headless"), ("m", "--tokens-only")):
        assert serve(folder, *flags, ENGINE_OVERLAY="strict").returncode == 0
    named = {"ENGINE_OVERLAY_DISABLE": "louder", "VLLM_USE_RUST_FRONTEND": "1"}
    assert serve(folder, "m", code=COMMAND, ENGINE_OVERLAY="strict", **named).returncode == 0


def test_strict_starts_children_and_other_programs(folder):
    code = (
        "import multiprocessing as m\n"
        "def child():\n    import vllm.greeting\n"
        "if __name__ == '__main__':\n"
        "    p = m.get_context('spawn').Process(target=child, name='EngineCore'); p.start(); p.join()\n"
        "    print(p.exitcode)\n"
    )
    # The parent imports no engine; its child has its command line.
    assert answer(serve(folder, "m", code=code, ENGINE_OVERLAY="strict", VLLM_USE_RUST_FRONTEND="1")) == 0
    code = "from engine_overlay import importer; importer.install('api')\n" + REPORT
    done = python(folder, code, ENGINE_OVERLAY="strict", VLLM_USE_RUST_FRONTEND="1")
    assert answer(done) == ["main", ["applied", "applied", "called"]]


@pytest.mark.parametrize(
    ("words", "env", "verdict", "code"),
    [
        ((), {}, "apply", 0),
        ((), {"VLLM_USE_RUST_FRONTEND": "1"}, "out of path", 1),
        (("--", "vllm", "serve", "m", "--headless"), {}, "out of path", 0),
        (("--", "env", "VLLM_USE_RUST_FRONTEND=1", "vllm", "serve", "m"), {}, "out of path", 1),
        (("--", "vllm-rs", "serve", "m"), {}, "out of path", 1),
    ],
)
def test_the_plan_reads_environment_and_command(folder, words, env, verdict, code):
    run = f"import sys; from engine_overlay.cli.main import main; sys.exit(main(['plan', '--json', *{words!r}]))"
    done = python(folder, run, **env)
    assert done.returncode == code, done.stderr
    (found,) = json.loads(done.stdout)["engines"]
    assert found["patches"]["louder"]["verdict"] == verdict and found["summary"][verdict] >= 1


def test_the_plan_of_what_starts_no_server_is_one_line(folder):
    run = "import sys; from engine_overlay.cli.main import main; sys.exit(main(['plan', '--', 'python', 'train.py']))"
    done = python(folder, run)
    assert done.returncode == 2 and len(done.stderr.splitlines()) == 1 and "starts no server" in done.stderr
