"""The findings on released engines: each with what causes it, and none of it in a set-up that is well."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from engine_overlay.verify import releases
from tests.core.support import write
from tests.doctor.cli import Doctor, on
from tests.matrix import environment

pytestmark = pytest.mark.engine

RELEASES = ("vllm-0.21.0", "vllm-0.24.0", "vllm-0.33.0", "aphrodite_engine-0.24.1")
PARSERS = ("--reasoning-parser", "qwen3", "--tool-call-parser", "qwen3_coder", "--enable-auto-tool-choice")


@pytest.fixture(scope="module")
def models(tmp_path_factory) -> Path:
    """The models of tests/doctor/models.py, made with the tokenizers library of the engines' environment."""
    folder = tmp_path_factory.mktemp("models")
    command = ["-m", "tests.doctor.models", str(folder)]
    environment.call(command, environment.variables(None, overlay=False)).check_returncode()
    return folder


def serve(label: str, model: Path | str, *flags: str, path: Path | None = None, options=(), **more: str) -> Doctor:
    """The doctor without probes, told that the release serves this model with these flags."""
    engine = ["aphrodite", "run"] if label.startswith("aphrodite") else ["vllm", "serve"]
    arguments = ["--no-probes", "--json", *options, "--", *engine, str(model), *flags]
    return on(label, *arguments, path=path, more=more)


def only(findings: list[dict[str, str]], word: str) -> dict[str, str]:
    found = [f for f in findings if word in f["what"]]
    assert len(found) == 1, findings
    return found[0]


@pytest.mark.parametrize("label", RELEASES)
def test_a_set_up_that_is_well_has_no_problem_and_no_note(label, models):
    done = serve(label, models / "thinking-xml", *PARSERS)
    assert done.what("problem", "note") == [] and done.code == 0
    assert {f["subject"] for f in done.found("flags") + done.found("tokenizer") + done.found("budget")} == {
        *("flags", "tokenizer", "budget")
    }
    assert "read by the engine" in done.found("flags")[0]["what"]
    assert only(done.found("parsers"), "qwen3_coder reads")["level"] == "ok"
    assert "is served" in done.found("budget")[0]["what"] and "<think>" in done.found("budget")[0]["why"]
    assert done.found("others", "ok") and done.found("rl") == []


def test_names_that_no_parser_has_are_answered_with_the_nearest(models):
    flags = ("--reasoning-parser", "qwen33", "--tool-call-parser", "zzz")
    done = serve("vllm-0.33.0", models / "thinking-xml", *flags)
    assert only(done.found("flags", "problem"), "qwen33")["fix"] == "--reasoning-parser qwen3"
    assert "tool-parser-plugin" in only(done.found("flags", "problem"), "zzz: this release")["fix"]
    assert only(done.found("flags", "problem"), "without --enable-auto-tool-choice")


def test_a_flag_that_the_release_does_not_have_is_answered_with_the_nearest(models):
    done = serve("vllm-0.33.0", models / "thinking-xml", *PARSERS, "--speculativ-confg", "3")
    found = only(done.found("flags", "problem"), "no flag --speculativ-confg, did you mean --speculative-config?")
    assert found["fix"] == "write --speculative-config for --speculativ-confg"
    # What the engine cannot read the doctor reads itself, so that the rest is looked at all the same.
    assert only(done.found("parsers"), "qwen3_coder reads")["level"] == "ok"


def test_calls_without_a_parser_and_a_model_that_does_not_think(models):
    done = serve("vllm-0.24.0", models / "plain-xml", "--enable-auto-tool-choice")
    assert only(done.found("flags", "problem"), "--enable-auto-tool-choice without --tool-call-parser")
    assert only(done.found("parsers"), "no tool parser is configured")["fix"].endswith("--tool-call-parser qwen3_coder")
    assert not [f for f in done.found("parsers") if "reasoning" in f["what"]]


@pytest.mark.parametrize("label", ["vllm-0.24.0", "aphrodite_engine-0.24.1"])
def test_parsers_that_do_not_read_what_the_template_writes(label, models):
    done = serve(label, models / "thinking-xml", "--tool-call-parser", "hermes", "--enable-auto-tool-choice")
    found = only(done.found("parsers", "problem"), "--tool-call-parser hermes does not read this model's calls")
    assert "<function=get_weather>" in found["why"] and found["fix"] == "--tool-call-parser qwen3_coder"
    found = only(done.found("parsers", "problem"), "the prompt opens <think>")
    assert found["fix"] == "--reasoning-parser qwen3"
    # Without a reasoning parser no budget: worth a note, as few servers want one.
    assert only(done.found("budget", "note"), "refused")


def test_a_template_that_no_parser_reads(models):
    flags = ("--tool-call-parser", "hermes", "--enable-auto-tool-choice")
    done = serve("vllm-0.33.0", models / "nobodys-calls", *flags)
    found = only(done.found("parsers", "problem"), "no tool parser of this release reads this model's calls")
    assert "@@get_weather::" in found["why"] and "--tool-parser-plugin" in found["fix"]


def test_a_model_without_calls_needs_no_parser(models):
    done = serve("vllm-0.33.0", models / "no-calls")
    assert done.found("parsers") == [] and done.found("flags", "problem") == []


def test_the_markup_decides_over_the_name(models, tmp_path):
    # It has the name and the type of a Qwen3, for which hermes is recommended.
    folder = tmp_path / "Qwen3-8B-tuned"
    folder.symlink_to(models / "glm")
    done = serve("vllm-0.33.0", folder, "--tool-call-parser", "hermes", "--enable-auto-tool-choice")
    found = only(done.found("parsers", "problem"), "does not read this model's calls")
    assert found["fix"] in ("--tool-call-parser glm45", "--tool-call-parser glm47")
    done = serve("vllm-0.33.0", models / "thinking-hermes", *PARSERS[:2], "--tool-call-parser", "hermes", PARSERS[4])
    assert done.what("problem", "note") == []
    assert "recommended for Qwen3" in only(done.found("parsers"), "hermes reads")["why"]


def test_markers_that_are_no_tokens_are_spelled_and_the_overlay_reads_them(models):
    done = serve("vllm-0.33.0", models / "no-call-tokens", *PARSERS)
    found = [f for f in done.found("tokenizer") if "breaks up" in f["what"]]
    assert {f["level"] for f in found} == {"note"} and "spelled_markers" in found[0]["why"]
    assert {f["what"].split()[0] for f in found} == {"<tool_call>", "</tool_call>"}
    done = serve("vllm-0.33.0", models / "no-call-tokens", *PARSERS, ENGINE_OVERLAY="off")
    found = [f for f in done.found("tokenizer") if "breaks up" in f["what"]]
    assert {f["level"] for f in found} == {"problem"} and "calls come as text" in found[0]["why"]
    assert "ENGINE_OVERLAY" in found[0]["fix"]


def test_a_parser_that_refuses_the_tokenizer(models):
    done = serve("vllm-0.21.0", models / "no-think-tokens", *PARSERS)
    found = only(done.found("tokenizer", "problem"), "--reasoning-parser qwen3 cannot be made")
    assert "could not locate" in found["why"]


def test_markers_that_the_engine_takes_out_of_the_text(models):
    done = serve("vllm-0.21.0", models / "special-think", *PARSERS)
    found = only(done.found("tokenizer", "problem"), "marked as special")
    assert "'onetwo' and content None" in found["why"] and "skip_special_tokens" in found["fix"]


def test_a_budget_that_is_refused_without_the_overlay(models):
    # It has no strings of its own; the overlay knows those of the format.
    flags = ("--reasoning-parser", "granite")
    off = serve("vllm-0.21.0", models / "thinking-xml", *flags, ENGINE_OVERLAY="off")
    found = only(off.found("budget", "problem"), "is refused (400)")
    assert "reasoning_config is not configured" in found["why"] and found["fix"].startswith("--reasoning-config '{")
    config = found["fix"].partition(" ")[2].strip("'")
    assert set(json.loads(config)) == {"reasoning_start_str", "reasoning_end_str"}
    # The fix that it names is one.
    fixed = serve("vllm-0.21.0", models / "thinking-xml", *flags, "--reasoning-config", config, ENGINE_OVERLAY="off")
    assert only(fixed.found("budget", "ok"), "is served")
    assert only(serve("vllm-0.21.0", models / "thinking-xml", *flags).found("budget", "ok"), "is served")


def test_a_release_without_budgets(models):
    done = serve("vllm-0.18.1", models / "thinking-xml", *PARSERS)
    assert only(done.found("budget", "note"), "has no thinking_token_budget")


def test_what_training_wants(models):
    model = models / "thinking-xml"
    done = serve("vllm-0.33.0", model, *PARSERS, options=["--rl"])
    assert {f["what"].split()[0] for f in done.found("rl", "problem")} >= {"logprobs_mode", "enable_prefix_caching"}
    assert all("ENGINE_OVERLAY_PROFILE=rl" in f["fix"] for f in done.found("rl", "problem"))
    done = serve("vllm-0.33.0", model, *PARSERS, ENGINE_OVERLAY_PROFILE="rl")
    assert done.found("rl", "problem") == [] and len(done.found("rl", "ok")) == 1
    flags = ("--logprobs-mode", "raw_logprobs")
    done = serve("vllm-0.33.0", model, *PARSERS, *flags, ENGINE_OVERLAY_PROFILE="rl")
    (found,) = done.found("rl", "problem")
    assert "logprobs_mode is raw_logprobs" in found["what"] and "take the flag back" in found["fix"]


PLUGIN = """
    import functools

    def load():
        from {engine}.reasoning.abs_reasoning_parsers import ReasoningParserManager
        stock = ReasoningParserManager.get_reasoning_parser.__func__

        @functools.wraps(stock)
        def get_reasoning_parser(cls, name):
            return stock(cls, name)

        ReasoningParserManager.get_reasoning_parser = classmethod(get_reasoning_parser)
    """


@pytest.mark.parametrize("label", ["vllm-0.33.0", "aphrodite_engine-0.24.1"])
def test_a_plugin_that_wraps_a_function_of_the_patches_is_named(label, tmp_path):
    engine = label.partition("_engine")[0].partition("-")[0]
    points = f"[{engine}.general_plugins]\nmeddling = meddler:load\n"
    files = {"meddler.py": PLUGIN.format(engine=engine), "meddler-1.2.dist-info/entry_points.txt": points}
    files |= {"meddler-1.2.dist-info/METADATA": "Name: meddler\nVersion: 1.2\n"}
    files |= {"meddler-1.2.dist-info/RECORD": "meddler.py,,\n"}
    done = on(label, "--no-probes", "--json", "--flags", f"{engine} serve org/none", path=write(tmp_path, files))
    assert only(done.found("others", "note"), "plug-in of meddler 1.2: meddling")
    found = only(done.found("others", "problem"), "ReasoningParserManager.get_reasoning_parser")
    assert found["what"].startswith("meddler of meddler wraps") and found["fix"] == "pip uninstall meddler"
    assert "engine_parser_names" in found["why"]


@pytest.mark.parametrize("label", ["vllm-0.18.1", "aphrodite_engine-0.21.0"])
def test_patches_whose_modules_no_probe_imports_are_proven(label):
    code = (
        "import json, os; from engine_overlay.doctor import child; from engine_overlay import engines\n"
        "name = engines.installed()[0].name\n"
        "answers = child.ask(name, ['probes'], {}, overlay=True, environ=os.environ)\n"
        "print('answers', json.dumps(answers.given['probes']['fp32_head']))"
    )
    more = {"ENGINE_OVERLAY_PROFILE": "rl"}
    sources = releases.fetch(releases.named(label))
    done = environment.run(["-c", code], sources, overlay=True, check=True, more=more)
    line = next(line for line in done.stdout.splitlines() if line.startswith("answers "))
    found = json.loads(line.partition(" ")[2])
    assert (found["on"][0], found["after_undo"][0]) == ("ABSENT", "PRESENT"), found


def test_each_recommended_name_is_one_of_an_engine():
    code = (
        "import json; from engine_overlay import engines\n"
        "e = engines.installed()[0]; e.module('reasoning'), e.module('tool_parsers')\n"
        "managers = e.module('reasoning').ReasoningParserManager, e.module('tool_parsers').ToolParserManager\n"
        "print('names', json.dumps([m.list_registered() for m in managers]))"
    )
    sources = releases.fetch(releases.named("vllm-0.33.0"))
    done = environment.run(["-c", code], sources, overlay=False, check=True)
    line = next(line for line in done.stdout.splitlines() if line.startswith("names "))
    known = dict(zip(("reasoning", "tools"), map(set, json.loads(line.partition(" ")[2])), strict=True))
    from engine_overlay.doctor.parsers import _data

    for entry in _data()["families"]:
        for kind in known:
            assert set(entry[kind]) <= known[kind], entry
    for entry in _data()["markup"]:
        assert set(entry["tools"]) <= known["tools"], entry
