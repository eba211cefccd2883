"""What is read from files without an engine: where a model is, what it has, and what is recommended for it."""

import json
from urllib.parse import urlparse

import pytest

from engine_overlay.doctor import model, parsers, tokenizer
from engine_overlay.doctor.child import Answers
from engine_overlay.doctor.flags import Flags
from tests.doctor.models import CALLS, template


def write(folder, config=None, tokenizer_config=None, tokenizer=None, jinja=None):
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in (("config", config), ("tokenizer_config", tokenizer_config), ("tokenizer", tokenizer)):
        if data is not None:
            (folder / f"{name}.json").write_text(data if isinstance(data, str) else json.dumps(data))
    if jinja is not None:
        (folder / "chat_template.jinja").write_text(jinja)
    return folder


def cached(home, name, revision="main", commit="abc"):
    """A model in a local cache, as the library of its makers lays it out."""
    place = home / "hub" / f"models--{name.replace('/', '--')}"
    (place / "refs").mkdir(parents=True)
    (place / "refs" / revision).write_text(commit)
    return write(place / "snapshots" / commit, {"model_type": "qwen3"})


def test_a_model_is_found_in_its_folder_and_in_the_local_cache(tmp_path):
    folder = write(tmp_path / "mine", {})
    assert model.find(str(folder)) == folder
    snapshot = cached(tmp_path / "home", "org/model")
    env = {"HF_HOME": str(tmp_path / "home")}
    assert model.find("org/model", None, env) == snapshot
    assert model.find("org/model", "abc", env) == snapshot
    assert model.find("org/model", None, {"HF_HUB_CACHE": str(tmp_path / "home" / "hub")}) == snapshot


@pytest.mark.parametrize("name", ["org/other", "nothing", "/not/there", "./x/y", "a/b/c"])
def test_a_model_that_is_not_here_is_one_line(tmp_path, name):
    cached(tmp_path, "org/model")
    with pytest.raises(model.NotHere) as raised:
        model.find(name, None, {"HF_HOME": str(tmp_path)})
    assert name in str(raised.value) and "\n" not in str(raised.value)


def test_a_revision_that_is_not_here_is_not_another_one(tmp_path):
    cached(tmp_path, "org/model")
    with pytest.raises(model.NotHere):
        model.find("org/model", "v2", {"HF_HOME": str(tmp_path)})


@pytest.mark.parametrize("broken", ["", "{", "[]", "null", '{"model_type": 5, "architectures": 7}'])
def test_broken_files_count_as_empty(tmp_path, broken):
    folder = write(tmp_path, broken, {"chat_template": "hello"}, broken)
    found = model.read("m", folder)
    assert found.template == "hello" and found.tokens == {} and found.architectures == ()


def test_a_folder_without_a_model_is_one_line(tmp_path):
    with pytest.raises(model.NotHere, match="neither"):
        model.read("m", tmp_path)


def test_the_template_is_the_one_that_an_engine_takes(tmp_path):
    several = [{"name": "default", "template": "D"}, {"name": "tool_use", "template": "T"}]
    assert model.read("m", write(tmp_path / "a", {}, {"chat_template": several})).template == "T"
    assert model.read("m", write(tmp_path / "b", {}, {"chat_template": "C"}, jinja="J")).template == "J"
    given = model.read("m", write(tmp_path / "c", {"x": 1}, {"chat_template": "C"}), template="G")
    assert given.template == "G"
    assert model.read("m", write(tmp_path / "d", {"x": 1})).template is None


def test_added_tokens_are_read_from_both_files(tmp_path):
    core = {"added_tokens": [{"content": "<a>", "special": True}, "odd"], "model": {"vocab": {"word": 1}}}
    own = {"added_tokens_decoder": {"5": {"content": "<b>", "special": False}}}
    found = model.read("m", write(tmp_path, {}, own, core))
    assert found.tokens == {"<a>": True, "<b>": False} and found.vocabulary == {"word"}


@pytest.mark.parametrize(
    ("name", "model_type", "family"),
    [
        ("Qwen/Qwen3-8B", "qwen3", "Qwen3"),
        ("Qwen/Qwen3-Coder-30B-A3B-Instruct", "qwen3_moe", "Qwen3-Coder, Qwen3-Next-Coder"),
        ("Qwen/Qwen3-235B-A22B-Instruct-2507", "qwen3_moe", "Qwen3 Instruct 2507"),
        ("Qwen/Qwen3.5-9B", "qwen3_5", "Qwen3.5 and later"),
        ("/models/mine", "qwen3_5_moe", "Qwen3.5 and later"),
        ("zai-org/GLM-4.6", "glm4_moe", "GLM-4.5 and 4.6"),
        ("zai-org/GLM-4.7-Flash", "glm4_moe_lite", "GLM-4.7"),
        ("deepseek-ai/DeepSeek-V3.2", "deepseek_v32", "DeepSeek V3.2"),
        ("deepseek-ai/DeepSeek-V4.1-Flash", "", "DeepSeek V4.1"),
        ("deepseek-ai/DeepSeek-V4-Pro", "deepseek_v4", "DeepSeek V4"),
        ("deepseek-ai/DeepSeek-R1-Distill-Llama-70B", "llama", "DeepSeek R1"),
        ("openai/gpt-oss-20b", "gpt_oss", "gpt-oss"),
        ("moonshotai/Kimi-K2-Thinking", "kimi_k2", "Kimi K2 Thinking"),
        ("MiniMaxAI/MiniMax-M3", "", "MiniMax M3"),
        ("somebody/unheard-of", "unheard", None),
    ],
)
def test_families_are_told_by_name_then_by_type(tmp_path, name, model_type, family):
    found = parsers.family_of(model.read(name, write(tmp_path, {"model_type": model_type, "x": 1})))
    assert (found.family if found else None) == family


def test_each_recommendation_has_a_source_and_names():
    for entry in parsers._data()["families"]:
        assert urlparse(entry["source"]).scheme == "https", entry
        assert entry["tools"] and ("name" in entry or "model_type" in entry), entry


@pytest.mark.parametrize(
    ("calls", "tools"),
    [("hermes", "hermes"), ("xml", "qwen3_coder"), ("glm", "glm47"), ("nobody", None), (None, None)],
)
def test_the_markup_of_a_template_names_its_parsers(calls, tools):
    found = parsers.markup_of(template(calls, thinks=False))
    assert (found[1][0] if found else None) == tools
    assert calls is None or calls in CALLS


@pytest.mark.parametrize(
    ("text", "tools"),
    [
        ("<|tool_calls_section_begin|><|tool_call_begin|>f:0", "kimi_k2"),
        ("<｜DSML｜function_calls>", "deepseek_v32"),
        ("<｜DSML｜tool_calls>", "deepseek_v4"),
        ("<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n```json\n{}", "deepseek_v3"),
        ("<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>{}", "deepseek_v31"),
        ('<minimax:tool_call>\n<invoke name="f">', "minimax_m2"),
        ("<seed:tool_call><function=f><parameter=a>", "seed_oss"),
        ("[TOOL_CALLS]f[ARGS]{}", "mistral"),
        ("<|python_tag|>", "llama3_json"),
        ("<|start|>assistant<|channel|>commentary to=functions.f", "openai"),
        ("<|tool_call>call:f{}", "gemma4"),
        ("a chat without tools", None),
    ],
)
def test_makers_markup_is_told_apart(text, tools):
    found = parsers.markup_of(text)
    assert (found[1][0] if found else None) == tools


@pytest.mark.parametrize(
    ("name", "jinja", "parser"),
    [
        ("org/unheard-of", "{{ '<think>' }}", "qwen3"),
        ("Qwen/Qwen3-8B", "{{ '<think>' }}", "qwen3"),
        ("Qwen/QwQ-32B", "{{ '<think>' }}", "deepseek_r1"),
        ("ByteDance-Seed/Seed-OSS-36B-Instruct", "{{ '<seed:think>' }}", "seed_oss"),
        ("mistralai/Magistral-Small", "{{ '[THINK]' }}", "mistral"),
        ("deepseek-ai/DeepSeek-V4-Pro", None, "deepseek_v4"),
        # Those need none, or engines choose it themselves.
        ("Qwen/Qwen3-8B", "{{ messages }}", None),
        ("Qwen/Qwen3-Coder-30B-A3B-Instruct", "{{ '<think>' }}", None),
        ("mistralai/Mistral-Large-3", "{{ messages }}", None),
        ("openai/gpt-oss-20b", "{{ '<|channel|>analysis' }}", None),
        ("org/unheard-of", None, None),
    ],
)
def test_a_model_that_thinks_needs_a_reasoning_parser(tmp_path, name, jinja, parser):
    found = model.read(name, write(tmp_path, {"x": 1}, jinja=jinja))
    said = [f for f in parsers.check(found, Flags(), Answers(), {}) if "no reasoning parser" in f.what]
    assert [f.fix for f in said] == ([f"--reasoning-parser {parser}"] if parser else [])
    for chosen in filter(None, [parser]):
        flags = Flags(reasoning_parser=chosen)
        assert not [f for f in parsers.check(found, flags, Answers(), {}) if "no reasoning parser" in f.what]


def test_where_no_engine_can_be_asked_the_files_are_read(tmp_path):
    core = {"added_tokens": [{"content": "<think>", "special": False}], "model": {"vocab": {}}}
    jinja = template("xml", thinks=True)
    found = model.read("m", write(tmp_path, {"x": 1}, {}, core, jinja))
    flags = Flags("qwen3", "hermes", True)
    (wrong,) = [f for f in parsers.check(found, flags, Answers(), {}) if f.level == "problem"]
    assert "hermes is not for calls" in wrong.what and wrong.fix == "--tool-call-parser qwen3_coder"
    broken = [f.what.split()[0] for f in tokenizer.check(found, flags, Answers(), {}, overlay=False)]
    assert broken == ["</think>", "<tool_call>", "</tool_call>"]
    well = Flags("qwen3", "qwen3_coder", True)
    assert not [f for f in parsers.check(found, well, Answers(), {}) if f.level == "problem"]
